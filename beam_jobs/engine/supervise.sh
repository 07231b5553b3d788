# sh supervise.sh COMMAND...: run a server until it ends, this shell gets SIGTERM, or the standard input closes, which
# it does when the process at its other end has ended, in any way (`cat` ends then). On Linux the server ends with this
# shell too.
exec 3<&0
setpriv --pdeathsig KILL true 2>/dev/null && set -- setpriv --pdeathsig KILL "$@"
"$@" 3<&- </dev/null &
server=$!
(cat <&3 >/dev/null; kill -9 $server) 2>/dev/null &
watcher=$!
trap 'kill $server 2>/dev/null' TERM
while wait $server; code=$?; kill -0 $server 2>/dev/null; do :; done
kill $watcher 2>/dev/null
exit $code
