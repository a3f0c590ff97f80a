"""Download the candidates' files, list their exception classes by AST."""
import ast, csv, io, json, re, subprocess, sys, zipfile, tarfile, os, concurrent.futures as cf, urllib.request
sys.path.insert(0,"/tmp/survey"); 
meta=json.load(open("/tmp/survey/meta.json"))
exec(open("/tmp/survey/list.py").read().split("def meta")[0])
from celery_dlq.classify.builtin import known
KNOWN=known.TABLE.packages()
cand=[]
for n in names:
    m=meta.get(n)
    if not m or not m["file"] or m["file"]["size"]>4_000_000: continue
    if re.match(r"(types-|.*-stubs$|apache-airflow-providers|pytest|opentelemetry-instr|mypy-boto3|types_)",n): continue
    reqs=[re.split(r"[ ;<>=!~\[(]",r)[0] for r in m["requires"] if "extra ==" not in r]
    if any(NET.match(r) for r in reqs) or WORDS.search(m["summary"]): cand.append(n)
print("candidates",len(cand))
os.makedirs("/tmp/survey/files",exist_ok=True)
def get(n):
    f=meta[n]["file"]; p=f"/tmp/survey/files/{f['name']}"
    if not os.path.exists(p):
        try:
            with urllib.request.urlopen(f["url"],timeout=60) as r: d=r.read()
            open(p,"wb").write(d)
        except Exception as e: return n,None
    return n,p
def sources(p):
    if p.endswith((".whl",".zip")):
        z=zipfile.ZipFile(p)
        for i in z.namelist():
            if i.endswith(".py"): yield i,z.read(i)
    else:
        t=tarfile.open(p)
        for m in t:
            if m.isfile() and m.name.endswith(".py"):
                i=m.name.split("/",1)[-1]; i=i.removeprefix("src/")
                yield i,t.extractfile(m).read()
BUILTIN={n for n in dir(__builtins__) if n.endswith(("Error","Exception","Warning")) or n in("BaseException","KeyboardInterrupt")}
def scan(np):
    n,p=np
    if not p: return n,None
    classes={}; tops=set()
    try:
        for path,data in sources(p):
            parts=path.split("/")
            if any(x in("tests","test","testing","docs","examples","example","setup.py","_vendor","vendor","vendored") for x in parts): continue
            tops.add(parts[0].removesuffix(".py"))
            if b"class " not in data: continue
            try: tree=ast.parse(data)
            except Exception: continue
            for node in ast.walk(tree):
                if isinstance(node,ast.ClassDef):
                    bases=[ast.unparse(b) for b in node.bases]
                    attrs=set(); cattrs={}
                    for s in node.body:
                        if isinstance(s,ast.Assign) and isinstance(s.targets[0],ast.Name): cattrs[s.targets[0].id]=ast.unparse(s.value)[:60]
                        if isinstance(s,ast.AnnAssign) and isinstance(s.target,ast.Name) and s.value is not None: cattrs[s.target.id]=ast.unparse(s.value)[:60]
                        if isinstance(s,(ast.FunctionDef,)):
                            if s.name=="__init__":
                                for x in ast.walk(s):
                                    if isinstance(x,ast.Attribute) and isinstance(x.ctx,ast.Store) and isinstance(x.value,ast.Name) and x.value.id=="self": attrs.add(x.attr)
                            elif not s.name.startswith("__"): attrs.add(s.name+"()")
                    classes.setdefault(node.name,dict(module=path.removesuffix(".py").removesuffix("/__init__").replace("/","."),bases=bases,attrs=sorted(attrs),cattrs=cattrs,doc=(ast.get_docstring(node) or "")[:400]))
    except Exception as e: return n,None
    # exceptions: transitively from builtins or by base's name
    def is_exc(name,seen=()):
        if name in BUILTIN: return True
        last=name.split(".")[-1]
        if last in classes and last not in seen:
            return any(is_exc(b,(*seen,last)) for b in classes[last]["bases"])
        return last.endswith(("Error","Exception"))
    exc={c:v for c,v in classes.items() if any(is_exc(b,(c,)) for b in v["bases"]) and not c.endswith("Warning") and "Warning" not in v["bases"]}
    return n,dict(tops=sorted(tops),exceptions=exc)
if __name__=="__main__":
    with cf.ThreadPoolExecutor(12) as ex: got=list(ex.map(get,cand))
    print("downloaded",sum(p is not None for _,p in got))
    out={}
    with cf.ProcessPoolExecutor(2) as ex:
        for n,r in ex.map(scan,got,chunksize=8):
            if r and r["exceptions"] and not set(r["tops"])&KNOWN and not any(t.startswith(("opentelemetry",)) for t in r["tops"]): out[n]=r
    json.dump(out,open("/tmp/survey/scan.json","w"))
    order=[n for n in cand if n in out]
    json.dump(order,open("/tmp/survey/order.json","w"))
    print("with exceptions, unknown to the tables:",len(order), "classes",sum(len(r["exceptions"]) for r in out.values()))
    hold=order[39::40]; print(len(hold),hold)
