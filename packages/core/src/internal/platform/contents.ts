import type { PlatformError } from "@effect/platform/Error"
import type { OpenFlag } from "@effect/platform/FileSystem"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Encoding from "effect/Encoding"
import * as Fiber from "effect/Fiber"
import * as Mailbox from "effect/Mailbox"
import * as Option from "effect/Option"
import * as Sink from "effect/Sink"
import * as Stream from "effect/Stream"
import type { OpenSandboxError } from "../../OpenSandboxError.js"
import { bounded } from "../bounded.js"
import type { Where } from "./errors.js"
import * as Errors from "./errors.js"
import type { Shell } from "./shell.js"

/** Bytes up to here travel in the command line, which a system limits to 128 KiB; more are uploaded first. */
const inline = 48 * 1024

/** Tells why a file cannot be read, and otherwise nothing. */
const readable = `stat -L -- "$1" >/dev/null || exit 1
[ ! -d "$1" ] || { echo ": Is a directory" >&2; exit 1; }
[ -r "$1" ] || { echo ": Permission denied" >&2; exit 1; }`

/** The bytes of a file. Servers answer a file that cannot be read in many ways, so the sandbox itself is asked why. */
export const read = (
  shell: Shell,
  where: Where,
  path: string,
  range: { readonly offset?: number | undefined; readonly length?: number | undefined } = {}
): Stream.Stream<Uint8Array, PlatformError> =>
  Stream.unwrap(
    Effect.map(shell.locate(where, path), (located) => {
      let empty = true
      const onError = (cause: OpenSandboxError): Stream.Stream<Uint8Array, PlatformError> =>
        // From its end on, a file has nothing.
        cause.status === 416
          ? Stream.empty
          : Stream.unwrap(
              Effect.zipRight(
                shell.run(where, readable, located),
                cause.status === undefined || !empty
                  ? Effect.fail(Errors.fromServer(where, cause))
                  : // It can be read, though not by the server.
                    Effect.succeed(special)
              )
            )
      // Files of /proc and the like have no size to go by.
      const special = Stream.unwrap(
        Effect.map(shell.bytes(where, `cat -- "$1" | base64`, located), (bytes): Stream.Stream<Uint8Array> => {
          const offset = range.offset ?? 0
          const wanted = bytes.subarray(offset, range.length === undefined ? undefined : offset + range.length)
          return wanted.length === 0 ? Stream.empty : Stream.succeed(wanted)
        })
      )
      return shell.execd.download(located, range).pipe(
        Stream.tap((bytes) =>
          Effect.sync(() => {
            empty &&= bytes.length === 0
          })
        ),
        Stream.catchAll(onError),
        Stream.concat(
          Stream.suspend(() => (empty && (range.offset ?? 0) === 0 && range.length !== 0 ? special : Stream.empty))
        )
      )
    })
  )

/** Pieces of just this size, but for the last. */
export const sized =
  (size: number) =>
  <E, R>(self: Stream.Stream<Uint8Array, E, R>): Stream.Stream<Uint8Array, E, R> =>
    Stream.suspend(() => {
      let held: Array<Uint8Array> = []
      let length = 0
      return self.pipe(
        Stream.mapConcat((bytes) => {
          const ready: Array<Uint8Array> = []
          for (let rest = bytes; rest.length > 0; ) {
            const piece = rest.subarray(0, size - length)
            rest = rest.subarray(piece.length)
            held.push(piece)
            length += piece.length
            if (length < size) continue
            ready.push(concat(held))
            held = []
            length = 0
          }
          return ready
        }),
        Stream.concat(Stream.suspend(() => (length === 0 ? Stream.empty : Stream.succeed(concat(held)))))
      )
    })

export const concat = (pieces: Iterable<Uint8Array>): Uint8Array => {
  const list = [...pieces]
  const [first] = list
  if (list.length === 1 && first !== undefined) return first
  const bytes = new Uint8Array(list.reduce((sum, piece) => sum + piece.length, 0))
  let at = 0
  for (const piece of list) {
    bytes.set(piece, at)
    at += piece.length
  }
  return bytes
}

/** What is to be written: in the command line, or uploaded. */
const source = `emit() { if [ -n "$2" ]; then cat -- "$2"; elif [ -n "$1" ]; then printf %s "$1" | base64 -d; fi; }`

/** Opens the file as `fopen` would with the flag, and writes. */
const writeScript = `target=$1; flag=$2; mode=$3; data=$4; file=$5
${source}
new=; slash=
[ -e "$target" ] || case $target in */)
  target=\${target%/}; slash=1
  [ ! -e "$target" ] || { echo ": Not a directory" >&2; exit 1; };; esac
if [ -e "$target" ]; then
  case $flag in *x*) echo ": File exists" >&2; exit 1;; esac
else
  new=1
  stat -L -- "\${target%/*}/." >/dev/null || exit 1
  case $flag in
    r*) stat -L -- "$target" >/dev/null; exit 1;;
  esac
  [ -z "$slash" ] || { echo ": Is a directory" >&2; exit 1; }
  case $flag in
    *x*) [ ! -L "$target" ] || { echo ": File exists" >&2; exit 1; }
      (set -C; : >"$target") || exit 1;;
  esac
fi
case $flag in
  a*) emit "$data" "$file" >>"$target" || exit 1;;
  r+) emit "$data" "$file" 1<>"$target" || exit 1;;
  *) emit "$data" "$file" >"$target" || exit 1;;
esac
[ -z "$new" ] || [ -z "$mode" ] || chmod "$(printf %o "$((0$mode & ~0$(umask)))")" "$target"`

const writeAtScript = `target=$1; seek=$2; data=$3; file=$4
${source}
[ -e "$target" ] || { stat -L -- "$target" >/dev/null; exit 1; }
emit "$data" "$file" | dd of="$target" bs=65536 seek="$seek" oflag=seek_bytes conv=notrunc`

const withData = (
  shell: Shell,
  where: Where,
  data: Uint8Array,
  use: (base64: string, file: string) => Effect.Effect<unknown, PlatformError>
): Effect.Effect<void, PlatformError> =>
  data.length <= inline
    ? Effect.asVoid(use(Encoding.encodeBase64(data), ""))
    : uploaded(shell, where, data, (file) => use("", file))

const uploaded = (
  shell: Shell,
  where: Where,
  content: Uint8Array | Stream.Stream<Uint8Array>,
  use: (file: string) => Effect.Effect<unknown, PlatformError>
): Effect.Effect<void, PlatformError> =>
  Effect.acquireUseRelease(
    shell.temporary(where),
    (file) =>
      shell.execd.upload([{ path: file, content, mode: "600" }]).pipe(
        Effect.mapError((cause) => Errors.fromServer(where, cause)),
        Effect.zipRight(use(file)),
        Effect.asVoid
      ),
    (file) => bounded("removing an upload", "5 seconds", shell.run(where, `rm -f -- "$1"`, file))
  )

const octal = (mode: number | undefined) => (mode === undefined ? "" : (mode & 0o7777).toString(8))

export interface WriteOptions {
  readonly flag?: OpenFlag | undefined
  readonly mode?: number | undefined
}

export const write = (
  shell: Shell,
  where: Where,
  path: string,
  data: Uint8Array,
  { flag = "w", mode }: WriteOptions = {}
): Effect.Effect<void, PlatformError> =>
  flag === "r"
    ? Effect.fail(Errors.fromCode(where, "EBADF", "opened for reading"))
    : Effect.flatMap(shell.locate(where, path), (target) =>
        withData(shell, where, data, (base64, file) =>
          shell.run(where, writeScript, target, flag, octal(mode), base64, file)
        )
      )

/** Writes over what is there, from `offset` on; `target` is located. */
export const writeAt = (
  shell: Shell,
  where: Where,
  target: string,
  data: Uint8Array,
  offset: bigint
): Effect.Effect<void, PlatformError> =>
  withData(shell, where, data, (base64, file) => shell.run(where, writeAtScript, target, String(offset), base64, file))

/** Writes at the end; `target` is located. */
export const append = (
  shell: Shell,
  where: Where,
  target: string,
  data: Uint8Array
): Effect.Effect<void, PlatformError> =>
  withData(shell, where, data, (base64, file) => shell.run(where, writeScript, target, "a", "", base64, file))

/** Makes, empties or only looks at a file, as opening it does. */
export const touch = (
  shell: Shell,
  where: Where,
  target: string,
  { flag = "r", mode }: WriteOptions
): Effect.Effect<void, PlatformError> =>
  Effect.asVoid(
    flag === "r"
      ? shell.run(
          where,
          `stat -L -- "$1" >/dev/null && { [ -r "$1" ] || { echo ": Permission denied" >&2; exit 1; }; }`,
          target
        )
      : shell.run(where, writeScript, target, flag, octal(mode), "", "")
  )

/** Takes everything in one upload, however much it is, and puts it in its place at the end. */
export const sink = (
  shell: Shell,
  where: Where,
  path: string,
  options: WriteOptions
): Sink.Sink<void, Uint8Array, never, PlatformError> =>
  Sink.unwrapScoped(
    Effect.gen(function* () {
      const { flag = "w" } = options
      if (flag === "r") return Sink.fail(Errors.fromCode(where, "EBADF", "opened for reading"))
      const target = yield* shell.locate(where, path)
      yield* touch(shell, where, target, { ...options, flag })
      const mailbox = yield* Mailbox.make<Uint8Array>({ capacity: 16, strategy: "suspend" })
      // The file is there now, and was not to be before.
      const then = flag.startsWith("a") ? "a" : flag === "r+" ? "r+" : "w"
      const upload = yield* Effect.forkScoped(
        uploaded(shell, where, Mailbox.toStream(mailbox), (file) =>
          shell.run(where, writeScript, target, then, "", "", file)
        ).pipe(Effect.ensuring(mailbox.shutdown))
      )
      const taken = Sink.forEachChunk((chunk: Chunk.Chunk<Uint8Array>) =>
        Effect.flatMap(mailbox.offerAll(chunk), (left) =>
          // Nobody takes it any more.
          Chunk.isEmpty(left) ? Effect.void : Fiber.join(upload)
        )
      )
      return Sink.mapEffect(taken, () => Effect.zipRight(mailbox.end, Fiber.join(upload)))
    })
  )

/** The whole of a file. */
export const readAll = (shell: Shell, where: Where, path: string): Effect.Effect<Uint8Array, PlatformError> =>
  Effect.map(Stream.runCollect(read(shell, where, path)), concat)

/** One piece of a file, or nothing where it ends. */
export const readAt = (
  shell: Shell,
  where: Where,
  path: string,
  offset: bigint,
  length: number
): Effect.Effect<Option.Option<Uint8Array>, PlatformError> =>
  length === 0
    ? Effect.succeedNone
    : Effect.map(Stream.runCollect(read(shell, where, path, { offset: Number(offset), length })), (pieces) => {
        const bytes = concat(pieces)
        return bytes.length === 0 ? Option.none() : Option.some(bytes)
      })
