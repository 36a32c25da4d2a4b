import type { PlatformError } from "@effect/platform/Error"
import type { FileSystem } from "@effect/platform/FileSystem"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import { bounded } from "../bounded.js"
import type { Where } from "./errors.js"
import * as Errors from "./errors.js"
import type { Shell } from "./shell.js"
import { stat } from "./stat.js"

/** Fails with the system's words where there is nothing at `$1`, or with other words where there is something. */
const missing = `{ ls -d -- "$1" >/dev/null && echo ": Invalid argument" >&2; exit 1; }`

const accessScript = `stat -L -- "$1" >/dev/null || exit 1
[ -z "$2" ] || [ -r "$1" ] || { echo ": Permission denied" >&2; exit 1; }
[ -z "$3" ] || [ -w "$1" ] || { echo ": Permission denied" >&2; exit 1; }`

/**
 * Modes are copied as they are. Without `overwrite` only what is not there yet is copied, whole trees at a time. What would copy a thing onto another
 * kind of thing, or into itself, is refused.
 */
const copyScript = `[ -e "$1" ] || [ -L "$1" ] || ${missing}
refuse() { echo "refused to copy $1" >&2; exit 1; }
directory() { [ -d "$1" ] && [ ! -L "$1" ]; }
if [ -e "$2" ] || [ -L "$2" ]; then
  [ "$1" != "$2" ] || refuse "a thing onto itself"
  [ -L "$1" ] || [ -L "$2" ] || [ ! "$1" -ef "$2" ] || refuse "a thing onto itself"
  if directory "$1"; then directory "$2" || refuse "a directory onto something else"
  elif directory "$2"; then refuse "something else onto a directory"; fi
fi
to=\${2%/}
if directory "$1"; then
  above=$to
  while [ -n "$above" ]; do above=\${above%/*}; [ ! "\${above:-/}" -ef "$1" ] || refuse "a directory into itself"; done
fi
mkdir -p -- "\${to%/*}/" || exit 1
umask 0
[ -z "$3" ] || directory "$1" || rm -f -- "$2" || exit 1
if [ -n "$3" ] || { [ ! -e "$2" ] && [ ! -L "$2" ]; }; then cp -RP $4 -T -- "$1" "$2"; exit; fi
directory "$2" && directory "$1" || exit 0
to=$2; options=$4; export to options
cd -- "$1" && find . -exec sh -c 'for file; do
  [ -e "$to/$file" ] || [ -L "$to/$file" ] || cp -RP $options -T -- "$file" "$to/$file" || exit 1
done' sh {} +`

const copyFileScript = `stat -L -- "$1" >/dev/null || exit 1
[ ! -d "$1" ] || { echo ": Is a directory" >&2; exit 1; }
[ ! -d "$2" ] || { echo ": Is a directory" >&2; exit 1; }
[ ! "$1" -ef "$2" ] || exit 0
cp -T -- "$1" "$2" && chmod "$(stat -L -c %a -- "$1")" "$2"`

const makeDirectoryScript = `[ -z "$3" ] || umask "$(printf %o "$((0777 & ~0$3 | 0$(umask)))")"
if [ -n "$2" ]; then mkdir -p -- "$1"; else mkdir -- "$1"; fi`

/** A slash at the end is for directories; what is behind a link is not what is removed. */
const removeScript = `if [ ! -e "$1" ] && [ ! -L "$1" ]; then
  said=$(ls -d -- "$1" 2>&1 >/dev/null)
  case \${said##*: } in "No such file"*) [ -z "$3" ] || exit 0;; esac
  printf '%s\\n' "\${said:-: Invalid argument}" >&2; exit 1
fi
case $1 in */) [ ! -L "\${1%/}" ] || { echo ": Not a directory" >&2; exit 1; };; esac
if [ -n "$2" ]; then rm -rf -- "$1"
elif [ -d "$1" ] && [ ! -L "$1" ]; then echo "a directory is removed with recursive only" >&2; exit 1
else rm -f -- "$1"; fi`

const renameScript = `[ -e "$1" ] || [ -L "$1" ] || ${missing}
if [ ! -L "$1" ] && [ ! -L "$2" ] && [ "$1" -ef "$2" ]; then exit 0; fi
if [ -d "$2" ] && [ ! -L "$2" ]; then
  if [ ! -d "$1" ] || [ -L "$1" ]; then echo ": Is a directory" >&2; exit 1; fi
  rmdir -- "$2" || exit 1
fi
mv -fT -- "$1" "$2"`

const temporaryScript = `directory=\${1:-"\${TMPDIR:-/tmp}"}
made=$(mktemp -d -- "\${directory%/}/$2XXXXXX") || exit 1`

/** What is gone meanwhile is no failure. */
const listScript = `cd -- "$1" 2>/dev/null || { ls -d -- "$1/." >/dev/null; exit 1; }
exec 3>&1
said=$({ find . -mindepth 1 $2 -print0 | base64 >&3; } 2>&1 | grep -v ': No such file or directory$')
[ -z "$said" ] || { printf '%s\\n' "$said" >&2; exit 1; }`

const linkScript = `readlink -n -- "$1" >/dev/null || ${missing}
readlink -n -- "$1" | base64`

const realPathScript = `stat -L -- "$1" >/dev/null || exit 1
printf '%s' "$(readlink -f -- "$1"; echo .)" | base64`

/** Some know whole seconds only. */
const touchScript = `stat -L -- "$1" >/dev/null || exit 1
set_time() { touch -c "$1" -d "$3" -- "$2" 2>/dev/null || touch -c "$1" -d "\${3%.*}" -- "$2"; }
set_time -a "$1" "$2" && set_time -m "$1" "$3"`

const truncateScript = `stat -L -- "$1" >/dev/null || exit 1
[ ! -d "$1" ] || { echo ": Is a directory" >&2; exit 1; }
truncate -s "$2" -- "$1"`

const flag = (value: boolean | undefined) => (value === true ? "1" : "")

const octal = (mode: number) => (mode & 0o7777).toString(8).padStart(5, "0")

const seconds = (time: Date | number): string => {
  const millis = typeof time === "number" ? Math.round(time * 1000) : time.getTime()
  const whole = Math.floor(millis / 1000)
  const rest = millis - whole * 1000
  return rest === 0 ? `@${whole}` : `@${whole}.${String(rest).padStart(3, "0")}`
}

type Operations = Pick<
  FileSystem,
  | "access"
  | "chmod"
  | "chown"
  | "copy"
  | "copyFile"
  | "link"
  | "makeDirectory"
  | "makeTempDirectory"
  | "makeTempDirectoryScoped"
  | "makeTempFile"
  | "makeTempFileScoped"
  | "readDirectory"
  | "readLink"
  | "realPath"
  | "remove"
  | "rename"
  | "stat"
  | "symlink"
  | "truncate"
  | "utimes"
>

/** What is done by the programs that every system has. */
export const makeOperations = (shell: Shell): Operations => {
  const at = (method: string, path: string): Where => ({ module: "FileSystem", method, path })

  const onPath = (
    method: string,
    path: string,
    script: string,
    ...args: ReadonlyArray<string>
  ): Effect.Effect<void, PlatformError> => {
    const where = at(method, path)
    return Effect.flatMap(shell.locate(where, path), (located) =>
      Effect.asVoid(shell.run(where, script, located, ...args))
    )
  }

  const onTwo = (method: string, from: string, to: string, script: string, ...args: ReadonlyArray<string>) => {
    const where = at(method, from)
    return Effect.flatMap(Effect.all([shell.locate(where, from), shell.locate(where, to)]), ([one, two]) =>
      Effect.asVoid(shell.run(where, script, one, two, ...args))
    )
  }

  const temporary = (
    method: string,
    { directory, prefix = "" }: { readonly directory?: string | undefined; readonly prefix?: string | undefined } = {},
    script: string,
    ...args: ReadonlyArray<string>
  ) => {
    const where = at(method, directory ?? prefix)
    return Effect.flatMap(directory === undefined ? Effect.succeed("") : shell.locate(where, directory), (located) =>
      [prefix, ...args].some((arg) => arg.includes("\0"))
        ? Effect.fail(Errors.badArgument(where, "a name must not contain NUL"))
        : shell.text(where, `${temporaryScript}\n${script}`, located, prefix, ...args)
    )
  }
  const directory = (method: string, options: Parameters<FileSystem["makeTempDirectory"]>[0]) =>
    temporary(method, options, `printf %s "$made" | base64`)
  const file = (method: string, options: Parameters<FileSystem["makeTempFile"]>[0]) =>
    temporary(
      method,
      options,
      `file=$made/$(mktemp -u XXXXXXXXXXXX)$3; : >"$file" || exit 1; printf %s. "$file" | base64`,
      options?.suffix ?? ""
    ).pipe(Effect.map((path) => path.slice(0, -1)))
  const scoped = (
    self: Effect.Effect<string, PlatformError>,
    parent: boolean
  ): Effect.Effect<string, PlatformError, Scope.Scope> =>
    Effect.acquireRelease(self, (path) =>
      bounded(
        "removing a temporary file",
        "5 seconds",
        remove(parent ? path.slice(0, path.lastIndexOf("/")) : path, { recursive: true, force: true })
      )
    )

  const remove: FileSystem["remove"] = (path, options) =>
    /(?:^|\/)\.\.?\/*$/.test(path)
      ? Effect.fail(Errors.fromCode(at("remove", path), "EINVAL", "a name must be given"))
      : onPath("remove", path.replace(/\/+$/, "/"), removeScript, flag(options?.recursive), flag(options?.force))

  return {
    remove,
    access: (path, options) => onPath("access", path, accessScript, flag(options?.readable), flag(options?.writable)),
    chmod: (path, mode) => onPath("chmod", path, `chmod "$2" "$1"`, octal(mode)),
    chown: (path, uid, gid) => onPath("chown", path, `chown "$2" "$1"`, `${uid}:${gid}`),
    copy: (from, to, options) =>
      onTwo("copy", from, to, copyScript, flag(options?.overwrite), options?.preserveTimestamps === true ? "-p" : ""),
    copyFile: (from, to) => onTwo("copyFile", from, to, copyFileScript),
    link: (from, to) => onTwo("link", from, to, `ln -T -- "$1" "$2"`),
    makeDirectory: (path, options) =>
      onPath(
        "makeDirectory",
        path,
        makeDirectoryScript,
        flag(options?.recursive),
        options?.mode === undefined ? "" : octal(options.mode)
      ),
    makeTempDirectory: (options) => directory("makeTempDirectory", options),
    makeTempDirectoryScoped: (options) => scoped(directory("makeTempDirectoryScoped", options), false),
    makeTempFile: (options) => file("makeTempFile", options),
    makeTempFileScoped: (options) => scoped(file("makeTempFileScoped", options), true),
    readDirectory: (path, options) => {
      const where = at("readDirectory", path)
      return shell.locate(where, path).pipe(
        Effect.flatMap((located) =>
          shell.text(where, listScript.replace("$2", options?.recursive === true ? "" : "-maxdepth 1"), located)
        ),
        Effect.map((printed) =>
          printed
            .split("\0")
            .slice(0, -1)
            .map((name) => name.slice("./".length))
            .sort()
        )
      )
    },
    readLink: (path) => {
      const where = at("readLink", path)
      return Effect.flatMap(shell.locate(where, path), (located) => shell.text(where, linkScript, located))
    },
    realPath: (path) => {
      const where = at("realPath", path)
      return shell.locate(where, path === "" ? "." : path).pipe(
        Effect.flatMap((located) => shell.text(where, realPathScript, located)),
        // A line end and the guard against the shell, which drops those.
        Effect.map((printed) => printed.slice(0, -2))
      )
    },
    rename: (from, to) => onTwo("rename", from, to, renameScript),
    stat: (path) => {
      const where = at("stat", path)
      return Effect.flatMap(shell.locate(where, path), (located) => stat(shell, where, located))
    },
    symlink: (target, path) => {
      const where = at("symlink", target)
      return Effect.gen(function* () {
        // A relative target starts from the link.
        if (target.startsWith("/") || target === "") {
          yield* onTwo("symlink", target, path, `ln -sT -- "$1" "$2"`)
        } else if (target.includes("\0")) yield* Errors.badArgument(where, "a path must not contain NUL")
        else {
          const located = yield* shell.locate(where, path)
          yield* shell.run(where, `ln -sT -- "$1" "$2"`, target, located)
        }
      })
    },
    truncate: (path, length = 0) => onPath("truncate", path, truncateScript, String(length)),
    utimes: (path, accessed, modified) => onPath("utimes", path, touchScript, seconds(accessed), seconds(modified))
  }
}
