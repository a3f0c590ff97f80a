import importlib.util, pathlib, sys, time, traceback, reprlib

base = pathlib.Path("/tmp/survey/cases/holdB")
n = 0
r = lambda x: (s := repr(x))[:300]
for f in sorted(base.glob("*.py")):
    if len(sys.argv) > 1 and f.stem not in sys.argv[1:]:
        continue
    spec = importlib.util.spec_from_file_location("case_" + f.stem, f)
    m = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(m)
    print("=====", f.stem, m.LIBRARY)
    seen = set()
    for name, fn, exp, firm, src in m.cases():
        assert exp in ("transient", "terminal") and firm in ("firm", "soft") and src and name not in seen
        seen.add(name)
        t = time.time()
        try:
            fn()
        except BaseException as e:
            dt = time.time() - t
            print(
                f"[{exp[:5]} {firm} {dt:.1f}s] {name}: {type(e).__module__}.{type(e).__qualname__}"
                f" args={r(e.args)} dict={r(e.__dict__)}"
            )
            c = e
            while c := c.__cause__ or (None if c.__suppress_context__ else c.__context__):
                print("      <-", type(c).__module__ + "." + type(c).__qualname__, r(c.args)[:150])
        else:
            print("!!!!! NOT RAISED", name)
