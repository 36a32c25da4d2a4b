/**
 * The shell scripts around commands: POSIX sh, for bash, dash and busybox. A command is the last part of its script, as it was given, so that
 * nothing has to be quoted and the exit code is the shell's own. What fails of a script itself is told by a line with a mark that is new in
 * every run, and then the shell kills itself: a script's failure has no exit code.
 */
import { createHash } from "node:crypto"
import { labelValue } from "../labels.js"

const quote = (word: string): string =>
  /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`

/** A command given as words becomes a command line that a POSIX shell reads as just these words. */
export const commandLine = (command: string | ReadonlyArray<string>): string =>
  typeof command === "string" ? command : command.map(quote).join(" ")

/** A script whose command has these variables in its environment. */
export const exportVariables = (variables: ReadonlyArray<readonly [string, string]>, command: string): string =>
  [...variables.map(([name, value]) => `export ${name}=${quote(value)}`), command].join("\n")

/** Where a session keeps its state, and what its commands start with. */
export interface SessionPlace {
  readonly folder: string
  /** Where its first command starts. */
  readonly initial: string | undefined
}

export interface OnceRequest {
  readonly sandboxId: string
  readonly key: string
  /** What must be the same with the same key. */
  readonly identity: ReadonlyArray<string | undefined>
}

export interface ScriptRequest {
  /** Letters and digits, new in every run. */
  readonly nonce: string
  readonly command: string
  /** The environment variables of the command. */
  readonly variables: ReadonlyArray<string>
  /** An uploaded file, below `/tmp`, that is its standard input. */
  readonly input?: string | undefined
  readonly once?: OnceRequest | undefined
  readonly session?: SessionPlace | undefined
  /** A directory for a command of a session. */
  readonly cwd?: string | undefined
}

const isName = (name: string): boolean => /^[A-Za-z_][A-Za-z0-9_]*$/.test(name)

/** Bash sets them itself, and lets nobody else. */
const reserved = new Set(["BASHOPTS", "EUID", "PPID", "SHELLOPTS", "UID"])

/**
 * The variables of a command have other names until it starts: a script's own work must not depend on the command's `PATH` or `TMPDIR`.
 */
export const variableOf = (name: string): string => (isName(name) && !reserved.has(name) ? `__sg_env_${name}` : name)

/** What a script's failure looks like in its output. */
export const failureMark = (nonce: string): string => `sandglass-${nonce}: `

/** What a script of that nonce says in its output why it failed; undefined where it did not. */
export const failureIn = (nonce: string, output: string): string | undefined =>
  new RegExp(`${failureMark(nonce)}(.*)`).exec(output)?.[1]

/** How a script ends that failed, where it cannot kill itself. */
export const failureCode = 125

const fail = (description: string): string => `__sg_fail "${description}"`

const failing = (nonce: string): string => {
  const tell = `printf '%s\\n' "${failureMark(nonce)}$1"`
  return `__sg_fail() { { ${tell} >&9; } 2>/dev/null || ${tell} >&2; command kill -9 "$$"; exit ${failureCode}; }`
}

/**
 * The file is unlinked before the command sees it. The API's `/tmp` is the container's `TMPDIR` where a server keeps sandboxes in plain
 * directories.
 */
const takeInput = (path: string): ReadonlyArray<string> => [
  `__sg_in=${quote(path)}`,
  `[ -e "$__sg_in" ] || __sg_in="\${TMPDIR:-/tmp}\${__sg_in#/tmp}"`,
  `command exec 0<"$__sg_in" || ${fail("the standard input is not there")}`,
  `rm -f "$__sg_in" 2>/dev/null; unset __sg_in`
]

const exportGiven = (names: ReadonlyArray<string>): ReadonlyArray<string> =>
  names.flatMap((name) => {
    const given = variableOf(name)
    return given === name
      ? []
      : [
          `[ -z "\${${given}+x}" ] || { command export ${name}="$${given}" && unset ${given}; } || ${fail(`the variable ${name} cannot be set`)}`
        ]
  })

const changeTo = (cwd: string): string =>
  `CDPATH= cd -- ${quote(cwd.startsWith("-") ? `./${cwd}` : cwd)} || ${fail(`the working directory cannot be entered`)}`

/** The state of a session as its last command left it: the file that `current` names, and the one before, which is no longer needed. */
const enterSession = ({ cwd, session }: ScriptRequest): ReadonlyArray<string> => {
  if (session === undefined) return []
  const gone = cwd?.startsWith("/")
    ? ":"
    : fail("the directory $__sg_pwd, where the session was, cannot be entered: give a cwd")
  return [
    `__sg_dir=${quote(session.folder)}; __sg_cur=; __sg_prev=-`,
    `{ read -r __sg_cur __sg_prev <"$__sg_dir/current"; } 2>/dev/null`,
    `[ -n "$__sg_cur" ] || ${fail("the session is closed, or its state is gone")}`,
    `[ "$__sg_prev" = - ] || rm -f "$__sg_dir/$__sg_prev" 2>/dev/null`,
    // Exported, and nothing else: a variable that stayed read-only could keep the session from going on.
    `declare() { shift; command export "$@"; }; __sg_ok=; unset __sg_pwd __sg_old`,
    `. "$__sg_dir/$__sg_cur" 2>/dev/null`,
    `unset -f declare`,
    `[ -n "$__sg_ok" ] || ${fail("the session's state cannot be read")}`,
    `if [ -n "\${__sg_pwd-}" ]; then CDPATH= cd -- "$__sg_pwd" 2>/dev/null || ${gone}`,
    session.initial === undefined ? "fi" : `else ${changeTo(session.initial)}; fi`,
    `[ -z "\${__sg_old-}" ] || OLDPWD=$__sg_old; unset __sg_pwd __sg_old __sg_ok`,
    ...(cwd === undefined ? [] : [changeTo(cwd)])
  ]
}

/** Around `__sg_note`, so that none of it is seen with `set -x`. */
const quietly = `{ __sg_x=$-; set +x; } 2>/dev/null; __sg_note "$@"; { __sg_r=$?; case $__sg_x in *x*) set -x;; esac; return "$__sg_r"; } 2>/dev/null`

/** The command's own trap for the end of the shell and the session's both run: `trap` notes it, in the main shell. */
const ownTrap = [
  `__sg_self() { __sg_pid=\${BASHPID-}; [ -n "$__sg_pid" ] || { read -r __sg_pid __sg_s </proc/self/stat; } 2>/dev/null; }`,
  `__sg_self; __sg_main=$__sg_pid; __sg_exit=`,
  `__sg_note() {`,
  `  __sg_self; [ "$__sg_pid" = "$__sg_main" ] || { command trap "$@"; return; }`,
  `  case \${1-} in --) shift;; -?*) command trap "$@"; return;; esac`,
  `  case $#,\${1-} in 1,0|1,EXIT) __sg_exit=; return;; 0,*|1,*) command trap "$@"; return;; esac`,
  `  __sg_a=$1; __sg_r=0; case $1 in ''|*[!0-9]*) shift;; *) __sg_a=-;; esac`,
  `  for __sg_s; do case $__sg_s in`,
  `    0|EXIT|exit|SIGEXIT) __sg_exit=$__sg_a; [ "$__sg_a" != - ] || __sg_exit=;;`,
  `    *) command trap -- "$__sg_a" "$__sg_s" || __sg_r=$?;;`,
  `  esac; done`,
  `  return "$__sg_r"`,
  `}`,
  // Dash and POSIX mode have no functions of that name; the others expand no aliases.
  `case "\${BASH_VERSION-},\${SHELLOPTS-}" in ,*|*posix*) alias trap=__sg_trap; __sg_trap() { ${quietly}; };; *) eval 'trap() { ${quietly}; }';; esac`
]

/** Keeps the session's state when the shell ends, with what is built into the shell only: the command may have changed `PATH`. */
const leaveSession = ({ nonce, session }: ScriptRequest): ReadonlyArray<string> => {
  if (session === undefined) return []
  const file = quote(`${session.folder}/${nonce}`)
  const current = quote(`${session.folder}/current`)
  return [
    ...ownTrap,
    `__sg_save() {`,
    `  __sg_pwd=\${PWD-}; __sg_old=\${OLDPWD-}; command export __sg_pwd __sg_old`,
    `  { { command export -p && command echo __sg_ok=1; } >|${file} && command echo "${nonce} $__sg_cur" 1<>${current}; } 2>/dev/null || return`,
    `  unset __sg_pwd __sg_old`,
    `}`,
    `__sg_status() { return "$1"; }`,
    `__sg_leave() {`,
    `  __sg_save || ${fail("the session's state could not be kept; the command's exit code was $__sg_code")}`,
    `  [ -n "\${__sg_exit-}" ] || exit "$__sg_code"`,
    `  __sg_set=; for __sg_s in u f C v x; do case $__sg_opts in *"$__sg_s"*) __sg_set="$__sg_set set -$__sg_s;";; esac; done`,
    `}`,
    `command trap '{ __sg_code=$? __sg_opts=$-; set +euvxfC; [ -z "\${BASH_VERSION-}" ] || command trap - DEBUG ERR RETURN; } >/dev/null 2>&1`,
    `__sg_leave`,
    `eval "{ $__sg_set __sg_status $__sg_code; } 2>/dev/null`,
    `$__sg_exit`,
    `{ exit $__sg_code; } 2>/dev/null"' 0`
  ]
}

/** Waits as long as the output goes on, showing what comes of it. */
const following = [
  `__sg_show() {`,
  `  exec 5<"$__sg_f~d/out" 6<"$__sg_f~d/err"; __sg_n=0`,
  `  while [ ! -e "$__sg_f~d/code" ] && __sg_alive; do`,
  `    cat <&5; cat <&6 >&2`,
  `    if [ $((__sg_n += 1)) -lt 20 ]; then __sg_z=0.02; else __sg_z=0.1; fi`,
  `    sleep $__sg_z 2>/dev/null || sleep 1`,
  `  done`,
  `  cat <&5; cat <&6 >&2`,
  `}`,
  // The time it started tells a process from a later one of the same number.
  `__sg_since() { { read -r __sg_l <"/proc/$1/stat"; } 2>/dev/null || return; set -- \${__sg_l##*) }; [ "$1" != Z ] && __sg_t=\${20}; }`,
  `__sg_alive() {`,
  `  if [ -r /proc/self/stat ]; then __sg_since "$__sg_p" && [ "$__sg_t" = "$__sg_b" ]; else kill -0 "$__sg_p" 2>/dev/null; fi`,
  `}`
]

/**
 * Runs a command at most once in a container: the first to come with a key claims it, with a link that names its process, and keeps output
 * and exit code in files; whoever comes with the same key waits for its end and gets the same. One that vanished without an exit code kills
 * whoever waits: its outcome is unknown. The container's id is part of the place, so that a restored container starts anew.
 *
 * Just before the command begins, its runner makes a file that nobody else may have made. Where a runner vanished before that, whoever comes
 * next makes a link in its place, which settles that this claim is void, and claims the key's next number.
 */
const once = (request: ScriptRequest, { identity, key, sandboxId }: OnceRequest): ReadonlyArray<string> => {
  const hash = createHash("sha256").update(JSON.stringify(identity)).digest("hex").slice(0, 32)
  const end = `__sg_${request.nonce}`
  return [
    `__sg_f="\${TMPDIR:-/tmp}/.sandglass-once"`,
    // Commands of any user come here.
    `for __sg_d in "$__sg_f" "$__sg_f/${labelValue(sandboxId)}"; do`,
    `  [ -d "$__sg_d" ] || mkdir -m 1777 "$__sg_d" 2>/dev/null || [ -d "$__sg_d" ] || ${fail("$__sg_d cannot be made")}`,
    `done`,
    ...following,
    `__sg_since "$$"; __sg_me=\${__sg_t-}; __sg_no=0`,
    `while __sg_f="$__sg_d/${labelValue(key)}~$((__sg_no += 1))"; do`,
    `__sg_p=$$; __sg_b=$__sg_me`,
    `if ln -s "$__sg_p.$__sg_b.${hash}" "$__sg_f" 2>/dev/null; then`,
    `  (umask 077; mkdir "$__sg_f~d" && : >"$__sg_f~d/out" && : >"$__sg_f~d/err") || ${fail("$__sg_f~d cannot be made")}`,
    `  __sg_show & __sg_shown=$!`,
    `  ( exec 9>&2 >>"$__sg_f~d/out" 2>>"$__sg_f~d/err"; . /dev/fd/8 ) 8<<'${end}'`,
    `exec 8<&-; __sg_f="$__sg_f~b"`,
    ...enterSession(request),
    ...exportGiven(request.variables),
    ...leaveSession(request),
    `set -C; command : 2>/dev/null >"$__sg_f" || ${fail("$__sg_f cannot be made")}; set +C`,
    `exec 9>&-`,
    request.command,
    end,
    `  __sg_code=$?`,
    `  [ -f "$__sg_f~b" ] || ${fail("the command could not be started")}`,
    `  echo "$__sg_code" >"$__sg_f~d/code.new" && mv "$__sg_f~d/code.new" "$__sg_f~d/code" || ${fail("the exit code $__sg_code could not be kept")}`,
    `  wait "$__sg_shown"`,
    `  trap - 0; exit "$__sg_code"`,
    `fi`,
    `__sg_l=$(readlink "$__sg_f") || ${fail("$__sg_f cannot be made")}`,
    `__sg_p=\${__sg_l%%.*}; __sg_b=\${__sg_l#*.}; __sg_b=\${__sg_b%.*}; __sg_why=`,
    `[ "\${__sg_l##*.}" = ${hash} ] || __sg_why="the idempotency key was used for another command"`,
    `until [ -d "$__sg_f~d" ] || ! __sg_alive; do sleep 0.05 2>/dev/null || sleep 1; done`,
    `[ ! -d "$__sg_f~d" ] || [ -x "$__sg_f~d" ] || __sg_why="the idempotency key was used by another user"`,
    `if [ -z "$__sg_why" ]; then`,
    `  until [ -e "$__sg_f~d/err" ] || ! __sg_alive; do sleep 0.05 2>/dev/null || sleep 1; done`,
    `  [ ! -e "$__sg_f~d/err" ] || __sg_show`,
    `  if [ -e "$__sg_f~d/code" ]; then read -r __sg_code <"$__sg_f~d/code"; trap - 0; exit "$__sg_code"; fi`,
    `else`,
    `  until [ -f "$__sg_f~b" ] || ! __sg_alive; do sleep 0.05 2>/dev/null || sleep 1; done`,
    `fi`,
    `ln -s void "$__sg_f~b" 2>/dev/null || [ -h "$__sg_f~b" ] || {`,
    `  [ -z "$__sg_why" ] || __sg_fail "$__sg_why"`,
    `  kill -9 "$$"`,
    `}`,
    `done`
  ]
}

/** The whole script. */
export const script = (request: ScriptRequest): string => {
  const { command, input, nonce, once: onceRequest, session, variables } = request
  return [
    failing(nonce),
    `trap '${fail("the shell ended before the command")}' 0`,
    ...(input === undefined ? [] : takeInput(input)),
    ...(onceRequest === undefined
      ? [
          ...enterSession(request),
          ...exportGiven(variables),
          ...(session === undefined ? ["trap - 0; unset -f __sg_fail"] : leaveSession(request)),
          command
        ]
      : once(request, onceRequest))
  ].join("\n")
}

/**
 * Makes the folder of a session and prints it: of the name that is given, or of the first free number from `from` on. A name that is there
 * already is joined. Its state is that of the same name in the first of the sandboxes that this one was resumed from that has it, with what
 * was its container's own (variables that the session had not changed, the directory where commands start) as it is in this one.
 */
export const createSession = (options: {
  readonly sandboxId: string
  readonly name: string | undefined
  readonly from: number
  readonly lineage: ReadonlyArray<string>
}): string => {
  const own = labelValue(options.sandboxId)
  return [
    `umask 077; __sg_b="\${TMPDIR:-/tmp}/.sandglass-sessions"`,
    `for __sg_d in "$__sg_b" "$__sg_b/${own}"; do`,
    `  [ -d "$__sg_d" ] || mkdir -m 711 "$__sg_d" 2>/dev/null || [ -d "$__sg_d" ] || { echo "$__sg_d cannot be made" >&2; exit 1; }`,
    `  [ -O "$__sg_d" ] || { echo "$__sg_d belongs to another user" >&2; exit 1; }`,
    `done`,
    ...(options.name === undefined
      ? [
          `__sg_n=${options.from}`,
          `until mkdir "$__sg_d/$__sg_n" 2>/dev/null; do`,
          `  [ -d "$__sg_d/$__sg_n" ] || { echo "$__sg_d/$__sg_n cannot be made" >&2; exit 1; }`,
          `  __sg_n=$((__sg_n + 1))`,
          `done`
        ]
      : [
          `__sg_n=${labelValue(options.name)}`,
          `if ! mkdir "$__sg_d/$__sg_n" 2>/dev/null; then`,
          `  __sg_i=0`,
          `  until [ -e "$__sg_d/$__sg_n/current" ]; do`,
          `    [ -d "$__sg_d/$__sg_n" ] && [ $((__sg_i += 1)) -lt 100 ] || { echo "$__sg_d/$__sg_n cannot be made" >&2; exit 1; }`,
          `    sleep 0.05 2>/dev/null || sleep 1`,
          `  done`,
          `  printf '%s\\n' joined "$__sg_n" "$__sg_d/$__sg_n"; exit`,
          `fi`
        ]),
    `__sg_s=$__sg_d/$__sg_n; __sg_o=`,
    `for __sg_i in ${options.lineage.map(labelValue).join(" ")}; do`,
    `  [ ! -e "$__sg_b/$__sg_i/$__sg_n/current" ] || { __sg_o=$__sg_b/$__sg_i/$__sg_n; break; }`,
    `done`,
    `(`,
    `  __sg_pwd=$PWD; export __sg_pwd`,
    `  export -p >"$__sg_s/base" || exit`,
    `  [ -n "$__sg_o" ] || { echo __sg_ok=1 >"$__sg_s/first"; exit; }`,
    `  read -r __sg_c __sg_r <"$__sg_o/current" || exit`,
    `  __sg_names=`,
    `  while read -r __sg_l; do`,
    `    case $__sg_l in "export "*) __sg_l=\${__sg_l#export };; "declare -"*) __sg_l=\${__sg_l#declare -* };; *) continue;; esac`,
    `    __sg_l=\${__sg_l%%=*}; case $__sg_l in ''|[0-9]*|*[!A-Za-z0-9_]*|__sg_pwd) ;; *) __sg_names="$__sg_names $__sg_l";; esac`,
    `  done <"$__sg_o/base"`,
    // As parameters, whatever the session made of IFS.
    `  set -- $__sg_names`,
    `  for __sg_l; do eval "__sg_is_$__sg_l=\\\${$__sg_l+x} __sg_now_$__sg_l=\\\${$__sg_l-}"; done`,
    `  __sg_here=$__sg_pwd`,
    `  declare() { shift; command export "$@"; }`,
    `  . "$__sg_o/base"; __sg_there=$__sg_pwd; unset __sg_pwd`,
    `  for __sg_l; do eval "__sg_was_$__sg_l=\\\${$__sg_l-}; unset $__sg_l"; done`,
    `  __sg_ok=; . "$__sg_o/$__sg_c"; [ -n "$__sg_ok" ] || exit`,
    `  for __sg_l; do`,
    `    eval "[ \\"\\\${$__sg_l-}\\" = \\"\\$__sg_was_$__sg_l\\" ]" || continue`,
    `    eval "if [ -n \\"\\$__sg_is_$__sg_l\\" ]; then export $__sg_l=\\"\\$__sg_now_$__sg_l\\"; else unset $__sg_l; fi"`,
    `  done`,
    `  case "\${__sg_pwd-}/" in "$__sg_there/"*) __sg_pwd=$__sg_here\${__sg_pwd#"$__sg_there"};; esac`,
    `  case "\${__sg_old-}/" in "$__sg_there/"*) __sg_old=$__sg_here\${__sg_old#"$__sg_there"};; esac`,
    `  { export -p && echo __sg_ok=1; } >"$__sg_s/first"`,
    `) && echo "first -" >"$__sg_s/current" || { rm -rf "$__sg_s"; echo "the state of the session cannot be written to $__sg_s" >&2; exit 1; }`,
    `[ -z "$__sg_o" ] || rm -rf "$__sg_o"`,
    `printf '%s\\n' made "$__sg_n" "$__sg_s"`
  ].join("\n")
}

/** Lets another user's commands run in a session. */
export const handSessionTo = ({ folder }: SessionPlace, uid: number): string => `chown -R ${uid} ${quote(folder)}`

/** Forgets a session's state. */
export const forgetSession = ({ folder }: SessionPlace): string => `rm -rf ${quote(folder)}`
