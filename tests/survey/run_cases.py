"""run_cases.py SET [NAME…]: judge the cases with the celery_dlq on the path. Prints the wrong ones and a summary."""
import importlib.util, json, pathlib, sys, traceback
from celery_dlq.classify import decide
base=pathlib.Path("/tmp/survey/cases")/sys.argv[1]
rows=[]
for f in sorted(base.glob("*.py")):
    if len(sys.argv)>2 and f.stem not in sys.argv[2:]: continue
    spec=importlib.util.spec_from_file_location("case_"+f.stem,f); m=importlib.util.module_from_spec(spec)
    try: spec.loader.exec_module(m)
    except BaseException as e: print("NOT LOADED",f.stem,repr(e)[:150]); continue
    it=iter(m.cases())
    while True:
        try: name,raises,expected,firm,source=next(it)
        except StopIteration: break
        except BaseException as e: print("BROKEN",f.stem,repr(e)[:150]); break
        try: raises(); print("NOT RAISED",f.stem,name); continue
        except BaseException as e: exc=e
        d=decide(exc)
        rows.append(dict(lib=f.stem,name=name,expected=expected,firm=firm,got=d.verdict.value,rule=d.rule,evidence=d.evidence,path=d.path))
        r=rows[-1]
        if r["got"]!=expected: print(f"{'FALSE TRANSIENT' if r['got']=='transient' else 'miss'} [{firm}] {f.stem}: {name}: {r['got']} by {r['rule']}: {r['evidence']} | {r['path']}")
firm=[r for r in rows if r["firm"]=="firm"]
ok=sum(r["got"]==r["expected"] for r in firm); ft=sum(r["got"]=="transient"!=r["expected"] for r in firm)
print(f"{len(rows)} cases, {len(firm)} firm, right {ok} ({100*ok/max(1,len(firm)):.1f} %), false transients {ft}")
print("rules of right transients:",{k:sum(r["rule"]==k and r["got"]==r["expected"]=="transient" for r in firm) for k in {r["rule"] for r in firm if r["got"]=="transient"}})
json.dump(rows,open(f"/tmp/survey/result-{sys.argv[1]}.json","w"),indent=1)
