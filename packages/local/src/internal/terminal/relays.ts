/**
 * Programs that hold a terminal. Neither Node nor Bun's `node:` modules can make one, so a script of a few lines does, in Perl or Python, inside the
 * sandbox: between the terminal and two pipes to the server.
 *
 * Its stdin is a sequence of frames: a letter, the length as 4 bytes with the highest first, and as many bytes. `d` is input, `w` the window (columns
 * and rows, 2 bytes each), `s` a signal's number for the process's group. Its end means the end of the process. Its stdout is what the terminal
 * prints; its exit code that of the process, and where that was killed by a signal it kills itself.
 *
 * @internal
 */
import * as ChildProcess from "node:child_process"
import * as Effect from "effect/Effect"
import { which } from "../which.js"

export type Argv = readonly [string, ...Array<string>]

export interface Relay {
  readonly name: string
  /** What to run, to have `argv` run in a terminal. */
  readonly command: (argv: Argv) => Argv
}

export const frame = (kind: "d" | "w" | "s", payload: Uint8Array): Buffer => {
  const made = Buffer.allocUnsafe(payload.length + 5)
  made.write(kind, 0, "latin1")
  made.writeUInt32BE(payload.length, 1)
  made.set(payload, 5)
  return made
}

export const windowFrame = (cols: number, rows: number): Buffer => {
  const payload = Buffer.alloc(4)
  payload.writeUInt16BE(cols, 0)
  payload.writeUInt16BE(rows, 2)
  return frame("w", payload)
}

/** Bytes that may wait in the relay in either direction before it stops reading. */
const HELD = 65536

/** The numbers of ioctl are those of every architecture of Linux but PowerPC, MIPS, SPARC and Alpha. */
const perl = `use strict;
use Errno ();
use POSIX ();
sub fail { syswrite(STDOUT, "no terminal: $_[0]: $!\\r\\n"); POSIX::_exit(126) }
my $flags = POSIX::O_RDWR() | POSIX::O_NOCTTY();
sysopen(my $master, "/dev/ptmx", $flags) or fail("/dev/ptmx");
my $int = pack("i", 0);
ioctl($master, 0x40045431, $int) or fail("unlock");
ioctl($master, 0x80045430, $int) or fail("number");
my $name = "/dev/pts/" . unpack("i", $int);
sysopen(my $slave, $name, $flags) or fail($name);
sub window { my $size = pack("S4", $_[1], $_[0], 0, 0); ioctl($master, 0x5414, $size) }
window(80, 24) or fail("window");
my $dead = 0;
$SIG{CHLD} = sub { $dead = 1 };
$SIG{PIPE} = "IGNORE";
$SIG{$_} = "IGNORE" for qw(HUP INT QUIT TERM TSTP TTIN TTOU);
my $pid = fork();
defined $pid or fail("fork");
if ($pid == 0) {
  $SIG{$_} = "DEFAULT" for qw(CHLD PIPE HUP INT QUIT TERM TSTP TTIN TTOU);
  POSIX::setsid();
  ioctl($slave, 0x540E, 0) or fail("control");
  POSIX::dup2(fileno($slave), $_) for 0 .. 2;
  POSIX::close($_) for fileno($slave), fileno($master);
  { no warnings; exec { $ARGV[0] } @ARGV; }
  fail($ARGV[0]);
}
close($slave);
fcntl($_, 4, fcntl($_, 3, 0) | POSIX::O_NONBLOCK()) for $master, \\*STDOUT, \\*STDIN;
my ($in, $keys, $out, $open, $eof, $status) = ("", "", "", 1, 0, 0);
sub again { $!{EAGAIN} || $!{EINTR} }
my $ended = 0;
# The jobs of a shell are groups of their own, in its session.
sub jobs {
  opendir(my $proc, "/proc") or return ();
  return grep {
    my $stat = "";
    if (/^\\d+$/ && open(my $file, "<", "/proc/$_/stat")) { local $/; $stat = <$file> // "" }
    $stat =~ /.*\\) [^ZX] \\d+ \\d+ (\\d+) /s && $1 == $pid;
  } readdir($proc);
}
sub drop {
  # It may not have made its session yet.
  kill("KILL", -$pid) || $ended || kill("KILL", $pid);
  for (1 .. 10) { my @left = jobs() or last; kill "KILL", @left; select(undef, undef, undef, 0.01) }
}
while (1) {
  if (!$ended && waitpid($pid, POSIX::WNOHANG()) == $pid) { $ended = 1; $status = $?; $keys = "" }
  my ($r, $w) = ("", "");
  vec($r, 0, 1) = 1 if $open && length($keys) < ${HELD};
  vec($r, fileno($master), 1) = 1 if !$eof && length($out) < ${HELD};
  vec($w, fileno($master), 1) = 1 if length($keys) && !$eof;
  vec($w, 1, 1) = 1 if length($out);
  # A signal may have come just before the wait, so it is not endless.
  my $n = select($r, $w, undef, $ended ? 0.02 : 1);
  next if $n < 0;
  last if $ended && $n == 0 && !length($out);
  if (vec($r, fileno($master), 1)) {
    my $got = sysread($master, $out, 65536, length($out));
    $eof = 1 if defined $got ? $got == 0 : !again();
  }
  if (vec($w, 1, 1)) {
    my $put = syswrite(STDOUT, $out);
    if (defined $put) { substr($out, 0, $put) = "" } elsif (!again()) { $out = ""; drop() }
  }
  if (vec($w, fileno($master), 1) && length($keys)) {
    my $put = syswrite($master, $keys, 4096);
    if (defined $put) { substr($keys, 0, $put) = "" } elsif (!again()) { $keys = "" }
  }
  if (vec($r, 0, 1)) {
    my $got = sysread(STDIN, $in, 65536, length($in));
    if (defined $got ? $got == 0 : !again()) { $open = 0; drop() unless $ended }
    while (length($in) >= 5) {
      my ($kind, $size) = unpack("aN", $in);
      last if length($in) < 5 + $size;
      my $payload = substr($in, 5, $size);
      substr($in, 0, 5 + $size) = "";
      if ($kind eq "d") { $keys .= $payload unless $ended }
      elsif ($kind eq "w") { window(unpack("nn", $payload)) }
      elsif ($kind eq "s" && !$ended) { kill(unpack("C", $payload), -$pid) || kill(unpack("C", $payload), $pid) }
    }
  }
}
if ($status & 127) { kill "KILL", $$; sleep 1 }
POSIX::_exit($status >> 8);
`

const python = `import fcntl, os, select, signal, struct, sys, termios, time
argv = sys.argv[2:]
def fail(what, cause):
    os.write(1, ("no terminal: %s: %s\\r\\n" % (what, cause)).encode())
    os._exit(126)
try:
    master, slave = os.openpty()
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
except OSError as cause:
    fail("openpty", cause)
ignored = [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGPIPE]
for name in ignored:
    signal.signal(name, signal.SIG_IGN)
wake, woken = os.pipe()
for fd in (wake, woken):
    os.set_blocking(fd, False)
signal.signal(signal.SIGCHLD, lambda number, stack: None)
signal.set_wakeup_fd(woken)
pid = os.fork()
if pid == 0:
    try:
        signal.set_wakeup_fd(-1)
        for name in ignored + [signal.SIGCHLD, signal.SIGXFSZ]:
            signal.signal(name, signal.SIG_DFL)
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        for fd in range(3):
            os.dup2(slave, fd)
        os.execv(argv[0], argv)
    except OSError as cause:
        fail(argv[0], cause)
os.close(slave)
for fd in (0, 1, master):
    os.set_blocking(fd, False)
inbox, keys, out = bytearray(), bytearray(), bytearray()
opened, eof, ended, status = True, False, False, 0
def send(number):
    try:
        os.killpg(pid, number)
    except OSError:
        # It may not have made its session yet.
        if not ended:
            os.kill(pid, number)
# The jobs of a shell are groups of their own, in its session.
def jobs():
    try:
        names = os.listdir("/proc")
    except OSError:
        names = []
    for name in names:
        if name.isdigit():
            try:
                with open("/proc/" + name + "/stat", "rb") as file:
                    state, _, _, session = file.read().rpartition(b") ")[2].split()[:4]
            except (OSError, ValueError):
                continue
            if state not in (b"Z", b"X") and int(session) == pid:
                yield int(name)
def drop():
    send(signal.SIGKILL)
    for _ in range(10):
        left = list(jobs())
        for job in left:
            try:
                os.kill(job, signal.SIGKILL)
            except OSError:
                pass
        if not left:
            break
        time.sleep(0.01)
def read(fd):
    try:
        return os.read(fd, 65536)
    except BlockingIOError:
        return None
    except OSError:
        return b""
while True:
    if not ended:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found == pid:
            ended = True
            keys.clear()
    reads, writes = [wake], []
    if opened and len(keys) < ${HELD}:
        reads.append(0)
    if not eof and len(out) < ${HELD}:
        reads.append(master)
    if keys and not eof:
        writes.append(master)
    if out:
        writes.append(1)
    reads, writes, _ = select.select(reads, writes, [], 0.02 if ended else None)
    if ended and not reads and not writes and not out:
        break
    if wake in reads:
        read(wake)
    if master in reads:
        got = read(master)
        if got == b"":
            eof = True
        elif got:
            out += got
    if 1 in writes:
        try:
            del out[:os.write(1, out)]
        except BlockingIOError:
            pass
        except OSError:
            out.clear()
            drop()
    if master in writes and keys:
        try:
            del keys[:os.write(master, keys[:4096])]
        except BlockingIOError:
            pass
        except OSError:
            keys.clear()
    if 0 in reads:
        got = read(0)
        if got == b"":
            opened = False
            if not ended:
                drop()
        elif got:
            inbox += got
        while len(inbox) >= 5:
            kind, size = struct.unpack(">cI", inbox[:5])
            if len(inbox) < 5 + size:
                break
            payload = bytes(inbox[5:5 + size])
            del inbox[:5 + size]
            if kind == b"d":
                if not ended:
                    keys += payload
            elif kind == b"w":
                cols, rows = struct.unpack(">HH", payload)
                fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
            elif kind == b"s" and not ended:
                send(payload[0])
if os.WIFSIGNALED(status):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGKILL)
os._exit(os.WEXITSTATUS(status))
`

const perlArchitectures: ReadonlySet<string> = new Set(["arm", "arm64", "ia32", "loong64", "riscv64", "s390x", "x64"])

export const perlRelay = (path: string): Relay => ({
  name: "perl",
  command: (argv) => [path, "-e", perl, "--", ...argv]
})

export const pythonRelay = (path: string): Relay => ({
  name: "python3",
  command: (argv) => [path, "-I", "-c", python, "--", ...argv]
})

/** Whether it makes a terminal here. */
export const works = (relay: Relay): Effect.Effect<boolean> =>
  Effect.async<boolean>((resume) => {
    const [file, ...args] = relay.command(["/bin/sh", "-c", "test -t 0 && test -t 1 && exit 7"])
    const child = ChildProcess.spawn(file, args, { stdio: ["pipe", "ignore", "ignore"] })
    child.stdin.on("error", () => {})
    child.on("error", () => resume(Effect.succeed(false)))
    child.on("exit", (code) => resume(Effect.succeed(code === 7)))
    return Effect.sync(() => child.kill("SIGKILL"))
  }).pipe(Effect.timeoutTo({ duration: "10 seconds", onSuccess: (found) => found, onTimeout: () => false }))

/** The first that works. */
export const findRelay: Effect.Effect<Relay | undefined> = Effect.gen(function* () {
  const perlPath = perlArchitectures.has(process.arch) ? which("perl") : undefined
  const pythonPath = which("python3")
  const candidates = [
    ...(perlPath === undefined ? [] : [perlRelay(perlPath)]),
    ...(pythonPath === undefined ? [] : [pythonRelay(pythonPath)])
  ]
  for (const relay of candidates) if (yield* works(relay)) return relay
  return undefined
})
