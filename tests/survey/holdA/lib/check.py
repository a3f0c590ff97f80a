"""check.py [NAME…]: does each case raise? Prints type, args, __dict__. Judges nothing."""

import importlib.util, pathlib, sys, time, warnings, logging

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
base = pathlib.Path("/tmp/survey/cases/holdA")
for f in sorted(base.glob("*.py")):
    if len(sys.argv) > 1 and f.stem not in sys.argv[1:]:
        continue
    spec = importlib.util.spec_from_file_location("case_" + f.stem, f)
    m = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(m)
    n = 0
    ids = set()
    print("=====", m.LIBRARY)
    for name, raises, expected, firm, source in m.cases():
        assert (
            expected in ("transient", "terminal") and firm in ("firm", "soft") and source and name not in ids
        )
        ids.add(name)
        t = time.time()
        try:
            raises()
            print("!!!!! NOT RAISED", name)
            continue
        except BaseException as e:
            n += 1
            mro = [c.__module__ + "." + c.__name__ for c in type(e).__mro__[:-2]]
            print(
                f"- {name} | {expected} {firm} ({time.time() - t:.1f}s)\n    {mro}\n    args={str(e.args)[:500]}\n    dict={str(e.__dict__)[:400]}"
            )
            for c in (e.__cause__, e.__context__):
                if c is not None:
                    print("    from", type(c).__name__, str(c)[:150])
    print(n, "raised")
