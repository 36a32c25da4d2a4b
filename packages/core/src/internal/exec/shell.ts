import type { ExecOptions } from "../../Exec.js"
import { labelValue } from "../labels.js"

const quote = (word: string): string =>
  /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`

/** A command given as words becomes a command line that a POSIX shell reads as just these words. */
export const commandLine = (command: string | ReadonlyArray<string>): string =>
  typeof command === "string" ? command : command.map(quote).join(" ")

/** Where scripts keep what the next one needs: in the container, so that it is part of its snapshots. */
const folder = `"\${TMPDIR:-/tmp}/.sandglass"`

/**
 * Runs a command with an uploaded file as its standard input; the file is unlinked before the command sees it. The API's `/tmp` is
 * the command's `TMPDIR` where a server keeps sandboxes in plain directories.
 */
export const withInput = (path: string, command: string): string =>
  [
    `__sg_in=${quote(path)}`,
    `[ -e "$__sg_in" ] || __sg_in="\${TMPDIR:-/tmp}/\${__sg_in##*/}"`,
    `exec 0<"$__sg_in" || exit`,
    `rm -f "$__sg_in" 2>/dev/null; unset __sg_in`,
    command
  ].join("\n")

/**
 * Runs a command in a session: what an earlier one exported, and the directory it ended in, are there again, and what this one leaves
 * is kept for the next. Kept in a file of the container, written when the shell exits, however it does; the exit code is the shell's
 * own, as the system reports it, so nothing that a command prints can change it.
 */
export const inSession = (
  name: string,
  initial: { readonly cwd?: string | undefined },
  command: string,
  options: Pick<ExecOptions, "cwd" | "env">
): string => {
  const names = Object.keys(options.env ?? {})
  return [
    `__sg_state=${folder}/sessions/${labelValue(name)}`,
    // Sourcing the state would undo the variables of this command.
    ...names.map((name) => `__sg_env_${name}="$${name}"`),
    `if [ -r "$__sg_state" ]; then . "$__sg_state" 2>/dev/null; cd -- "$PWD"`,
    initial.cwd === undefined ? "fi" : `else cd -- ${quote(initial.cwd)} || exit; fi`,
    ...names.map((name) => `export ${name}="$__sg_env_${name}"; unset __sg_env_${name}`),
    ...(options.cwd === undefined ? [] : [`cd -- ${quote(options.cwd)} || exit`]),
    `__sg_keep() { (umask 077; export PWD; mkdir -p "\${__sg_state%/*}" && export -p >"$__sg_state.$$" && mv -f "$__sg_state.$$" "$__sg_state"); }`,
    `trap '__sg_code=$?; __sg_keep; exit $__sg_code' 0`,
    `eval ${quote(command)}`
  ].join("\n")
}

/** Forgets a session's state. */
export const forgetSession = (name: string): string => `rm -f ${folder}/sessions/${labelValue(name)}`

/**
 * Runs a command at most once in a container: the first to come with a key runs it and keeps output and exit code in files; whoever
 * comes with the same key waits for its end and gets the same. One whose runner vanished without an exit code kills itself: its outcome is
 * unknown. The container's id is part of the place, so that a restored container starts anew.
 */
export const once = (sandboxId: string, key: string, command: string): string =>
  [
    `__sg_once=${folder}/once/${labelValue(sandboxId)}/${labelValue(key)}`,
    `(umask 077; mkdir -p "\${__sg_once%/*}") || exit`,
    `if (umask 077; mkdir "$__sg_once") 2>/dev/null; then`,
    `  echo $$ >"$__sg_once/pid"`,
    `  mkfifo "$__sg_once/o" "$__sg_once/e" || exit`,
    `  tee "$__sg_once/out" <"$__sg_once/o" & __sg_out=$!`,
    `  tee "$__sg_once/err" <"$__sg_once/e" >&2 & __sg_err=$!`,
    `  (eval ${quote(command)}) >"$__sg_once/o" 2>"$__sg_once/e"; __sg_code=$?`,
    `  wait $__sg_out $__sg_err`,
    `  echo $__sg_code >"$__sg_once/code.new" && mv "$__sg_once/code.new" "$__sg_once/code"`,
    `  exit $__sg_code`,
    `fi`,
    `until [ -s "$__sg_once/pid" ]; do sleep 0.05; done`,
    `while [ ! -e "$__sg_once/code" ] && kill -0 "$(cat "$__sg_once/pid")" 2>/dev/null; do sleep 0.05; done`,
    `cat "$__sg_once/out"; cat "$__sg_once/err" >&2`,
    `[ -e "$__sg_once/code" ] || kill -9 $$`,
    `exit "$(cat "$__sg_once/code")"`
  ].join("\n")

/** A script whose command has these variables in its environment. */
export const exportVariables = (variables: ReadonlyArray<readonly [string, string]>, command: string): string =>
  [...variables.map(([name, value]) => `export ${name}=${quote(value)}`), command].join("\n")
