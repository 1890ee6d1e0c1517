# ab.sh PLAN_A PYZ_A PLAN_B PYZ_B PAIRS
cd /tmp/m/run; for i in $(seq $5); do for x in A B; do
 [ $x = A ] && { p=$1; z=$2; } || { p=$3; z=$4; }
 rm -rf cal*; python3 - $z $p $x <<'P'
import resource,subprocess,sys,time
z,p,x=sys.argv[1:]
t=time.time(); subprocess.run(['python3',z,p],stdout=subprocess.DEVNULL,stderr=subprocess.DEVNULL); w=time.time()-t
u=resource.getrusage(resource.RUSAGE_CHILDREN)
print(x, f"wall {w:.1f} user {u.ru_utime:.1f} sys {u.ru_stime:.2f} load {open('/proc/loadavg').read().split()[0]}",flush=True)
P
done; done
