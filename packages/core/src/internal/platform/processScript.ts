import type { StandardCommand } from "@effect/platform/Command"
import * as HashMap from "effect/HashMap"
import * as Option from "effect/Option"
import { commandLine } from "../exec/shell.js"

/** The words that are run. */
export const wordsOf = (command: StandardCommand): ReadonlyArray<string> =>
  command.shell === false
    ? [command.command, ...command.args]
    : [command.shell === true ? "/bin/sh" : command.shell, "-c", [command.command, ...command.args].join(" ")]

/** Names that mean something to the shell itself, or that it does not take. */
const isSpecial = (name: string): boolean =>
  !/^[A-Za-z_][A-Za-z0-9_]*$/.test(name) || /^(?:BASH|LC_|LANG)/.test(name) || special.has(name)

const special = new Set([
  ..."DIRSTACK EPOCHREALTIME EPOCHSECONDS EUID FUNCNAME GROUPS HISTCMD LINENO OLDPWD OPTERR OPTIND".split(" "),
  ..."PIPESTATUS POSIXLY_CORRECT PPID PWD RANDOM SECONDS SHELLOPTS SHLVL SRANDOM UID _".split(" ")
])

interface Prepared {
  /** What the shell exports: values of which no command line tells. */
  readonly exports: ReadonlyArray<string>
  readonly words: ReadonlyArray<string>
}

const prepare = (command: StandardCommand): Prepared => {
  const words = wordsOf(command)
  const variables = HashMap.toEntries(command.env)
  const given = (entries: typeof variables) => entries.map(([name, value]) => `${name}=${value}`)
  if (!command.extendEnv) return { exports: [], words: ["env", "-i", ...given(variables), ...words] }
  const viaEnv = variables.some(([name]) => isSpecial(name))
  // `env` itself has to be found.
  const exported = variables.filter(([name]) => !isSpecial(name) && !(viaEnv && name === "PATH"))
  return {
    exports: exported.map(([name, value]) => `export ${name}=${commandLine([value])}`),
    words: viaEnv ? ["env", ...given(variables.filter((variable) => !exported.includes(variable))), ...words] : words
  }
}

/** Where the program is looked for: as `execvp` does with the variables of the command. */
const searchPath = (command: StandardCommand): string =>
  Option.match(HashMap.get(command.env, "PATH"), {
    onNone: () => (command.extendEnv ? `"$PATH"` : "/bin:/usr/bin"),
    onSome: (path) => commandLine([path])
  })

/** Fails, and says with which code, where there is no such program, or not the one that a script of it names as its interpreter. */
const finding = `__sg_interpreted() {
  IFS= read -r -n 300 head <"$1" || [ -n "$head" ] || return 0
  case $head in "#!"*) ;; *) return 0;; esac
  IFS=" 	"; set -- \${head#"#!"}
  [ -z "$1" ] || [ -e "$1" ] || { echo "failed ENOENT"; exit 1; }
} 2>/dev/null
__sg_find() (
  set -f
  [ -n "$1" ] || { echo "failed ENOENT"; exit 1; }
  case $1 in */*) IFS=; set -- "$1" "\${1%/*}" "\${1##*/}";; *) IFS=:; set -- "$1" "$2" "$1";; esac
  seen=
  for folder in $2; do
    file=\${folder:-.}/$3
    [ -f "$file" ] && [ -x "$file" ] && __sg_interpreted "$file" && exit 0
    [ -e "$file" ] && seen=1
  done
  case $1 in /*) [ ! -x "$1" ] || [ -d "$1" ] || exit 0;; esac
  if [ -n "$seen" ]; then echo "failed EACCES"; else echo "failed ENOENT"; fi
  exit 1
)`

const prepared = `__sg_in=$(mktemp -d "\${TMPDIR:-/tmp}/.sandglass-XXXXXX") && mkfifo "$__sg_in/in" ||
  { echo "failed EIO"; exit 125; }`

/**
 * Standard input that can end, over a connection that has no word for it: pieces, each after its length in a line, until a length of 0. It
 * goes through a pipe with a name, so that the program itself takes the place of the shell, and exit code and signals are its own.
 */
const feeding = `exec 3<&0
{ rm -rf "$__sg_in"
  while IFS= read -r __sg_n && [ "$__sg_n" -gt 0 ]; do
    dd bs="$__sg_n" count=1 iflag=fullblock || break
  done; } <&3 3<&- >"$__sg_in/in" 2>/dev/null &
exec <"$__sg_in/in" 3<&-
unset __sg_in`

export interface Segment {
  readonly command: StandardCommand
  /** Where it starts, if not where the whole script does. */
  readonly cwd?: string | undefined
}

const line = ({ command, cwd }: Segment, alone: boolean): string => {
  const { exports, words } = prepare(command)
  const start = [...exports, `exec ${commandLine(words)}`]
  if (cwd !== undefined) return `(${[`cd -- ${commandLine([cwd])}`, ...start].join(" && ")})`
  if (alone) return start.join("\n")
  return exports.length === 0 ? commandLine(words) : `(${start.join(" && ")})`
}

const check = ({ command, cwd }: Segment): string => {
  const [program = ""] = wordsOf(command)
  const find = `__sg_find ${commandLine([program])} ${searchPath(command)}`
  return cwd === undefined
    ? `${find} || exit 127`
    : `(cd -- ${commandLine([cwd])} 2>/dev/null || { echo "failed ENOENT"; exit 1; }; ${find}) || exit 127`
}

/**
 * The script that runs commands joined by pipes. Its first line is no output: `started` with its process id, or `failed` with the
 * system's code.
 */
export const processScript = (segments: ReadonlyArray<Segment>, feeds: boolean): string => {
  const [only] = segments
  return [
    finding,
    ...segments.map(check),
    "unset -f __sg_find __sg_interpreted",
    ...(feeds ? [prepared, `echo "started $$"`, feeding] : [`echo "started $$"`]),
    segments.length === 1 && only !== undefined && only.cwd === undefined
      ? line(only, true)
      : segments.map((segment) => line(segment, false)).join(" | ")
  ].join("\n")
}

/** What the ledger says of it. */
export const recordedCommand = (segments: ReadonlyArray<Segment>): string =>
  segments
    .map(({ command, cwd }) => {
      const words =
        segments.length === 1 && command.shell !== false
          ? [command.command, ...command.args].join(" ")
          : commandLine(wordsOf(command))
      return cwd === undefined ? words : `(cd ${commandLine([cwd])} && ${words})`
    })
    .join(" | ")
