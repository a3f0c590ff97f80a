import csv,collections
from celery_dlq.classify.names import says
r=list(csv.reader(open('/tmp/survey/judged.csv')))[1:]
seen={}
for x in r: seen[(x[1],x[3],x[4])]=x
c=collections.Counter(); by=collections.defaultdict(collections.Counter)
for x in seen.values():
    f=says(x[4])
    k='T' if f and f.verdict.value=='transient' else ('L' if f else '-')
    c[k,x[5]]+=1
    if k=='T': by[f.words][x[5]]+=1
print(c); t,l=c['T','transient'],c['T','lasting']; print(t,l,t/(t+l))
for w,k in sorted(by.items(),key=lambda y:-sum(y[1].values())): print(w,dict(k))
