import type { PlatformError } from "@effect/platform/Error"
import type * as FileSystem from "@effect/platform/FileSystem"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"

/** A program for any machine: `d` is an empty directory of its own. Its result is compared from machine to machine. */
export type FileProgram = (fs: FileSystem.FileSystem, d: string) => Effect.Effect<unknown, PlatformError, Scope.Scope>

/** The same under other names. */
const methods: { readonly [name: string]: string } = { utime: "utimes", stream: "open", sink: "open" }

/** What a program gave, in a form that two machines can be compared by. */
export const outcome = <A, R>(self: Effect.Effect<A, PlatformError, R>) =>
  Effect.map(Effect.either(self), (either) => {
    if (Either.isRight(either)) return { ok: either.right }
    const { _tag, method, module } = either.left
    return { failed: [_tag === "SystemError" ? either.left.reason : _tag, module, methods[method] ?? method] }
  })

const bytes = Uint8Array.from({ length: 256 }, (_, n) => n)
const names = [
  "plain",
  'it\'s a "name"',
  "new\nline",
  "-n",
  "$HOME `x` \\",
  "报告 é👩‍👩‍👧",
  " ",
  "%s*?[a]",
  "a\ttab",
  "..."
]

const mode = (fs: FileSystem.FileSystem, path: string) =>
  Effect.map(fs.stat(path), (info) => (info.mode & 0o7777).toString(8))

const text = (fs: FileSystem.FileSystem, path: string) => fs.readFileString(path)

/** Several programs after one another, each with its outcome. */
const each = (...programs: ReadonlyArray<Effect.Effect<unknown, PlatformError, Scope.Scope>>) =>
  Effect.forEach(programs, outcome)

const collected = (stream: Stream.Stream<Uint8Array, PlatformError>) =>
  Effect.map(Stream.runCollect(stream), (pieces) => Chunk.toReadonlyArray(pieces).map((piece) => [...piece].join()))

export const filePrograms: { readonly [name: string]: FileProgram } = {
  "writes and reads bytes": (fs, d) =>
    Effect.zipRight(
      fs.writeFile(`${d}/a`, bytes),
      Effect.map(fs.readFile(`${d}/a`), (_) => [..._])
    ),
  "writes and reads nothing": (fs, d) =>
    Effect.zipRight(fs.writeFile(`${d}/a`, new Uint8Array()), fs.readFileString(`${d}/a`)),
  "takes any name": (fs, d) =>
    Effect.gen(function* () {
      for (const name of names) yield* fs.writeFileString(`${d}/${name}`, name)
      const found = yield* fs.readDirectory(d)
      for (const name of names) {
        yield* fs.makeDirectory(`${d}/sub/${name}`, { recursive: true })
        yield* fs.copyFile(`${d}/${name}`, `${d}/sub/${name}/${name}`)
        yield* fs.symlink(name, `${d}/sub/${name}/link`)
        yield* fs.chmod(`${d}/${name}`, 0o640)
      }
      return [
        found.sort(),
        yield* Effect.forEach(names, (name) => text(fs, `${d}/sub/${name}/${name}`)),
        yield* Effect.forEach(names, (name) => fs.readLink(`${d}/sub/${name}/link`)),
        (yield* fs.readDirectory(`${d}/sub`, { recursive: true })).sort(),
        yield* Effect.forEach(names, (name) => mode(fs, `${d}/${name}`))
      ]
    }),
  "reads what does not exist, or is a directory, or is below a file": (fs, d) =>
    Effect.gen(function* () {
      yield* fs.writeFileString(`${d}/file`, "x")
      return yield* each(
        fs.readFile(`${d}/none`),
        fs.readFile(d),
        fs.readFile(`${d}/file/x`),
        fs.readFileString(`${d}/none`),
        Stream.runDrain(fs.stream(`${d}/none`)),
        fs.stat(`${d}/none`),
        fs.stat(`${d}/file/x`),
        fs.access(`${d}/none`),
        fs.exists(`${d}/none`),
        fs.exists(d),
        fs.readDirectory(`${d}/none`),
        fs.readDirectory(`${d}/file`),
        fs.readFile("")
      )
    }),
  "refuses names with NUL": (fs, d) =>
    each(fs.access(`${d}/a\0b`), fs.stat(`${d}/a\0b`), fs.makeDirectory(`${d}/a\0b`), fs.rename(d, `${d}/a\0b`)),
  "opens with flags and modes when it writes": (fs, d) =>
    Effect.gen(function* () {
      const a = `${d}/a`
      const results = yield* each(
        fs.writeFileString(a, "xyz", { flag: "r+" }),
        fs.writeFileString(a, "abc", { flag: "wx", mode: 0o600 }),
        fs.writeFileString(a, "xyz", { flag: "wx" }),
        text(fs, a),
        fs.writeFileString(a, "12", { flag: "r+", mode: 0o777 }),
        text(fs, a),
        fs.writeFileString(a, "45", { flag: "a" }),
        text(fs, a),
        mode(fs, a),
        fs.writeFileString(a, "new"),
        text(fs, a),
        mode(fs, a),
        fs.writeFileString(`${d}/b`, "+", { flag: "a+", mode: 0o755 }),
        mode(fs, `${d}/b`),
        fs.writeFileString(`${d}/c`, ""),
        mode(fs, `${d}/c`),
        fs.writeFileString(`${d}/none/c`, ""),
        fs.writeFileString(`${d}/none/`, ""),
        fs.writeFileString(`${d}/a/`, ""),
        fs.writeFileString(`${d}/a/c`, ""),
        fs.writeFileString(d, ""),
        fs.writeFileString(`${d}/b`, "", { flag: "ax" }),
        fs.writeFileString(`${d}/b`, "x", { flag: "r" })
      )
      return results
    }),
  "writes through links, and reads through them": (fs, d) =>
    Effect.gen(function* () {
      yield* fs.makeDirectory(`${d}/sub`)
      yield* fs.symlink("target", `${d}/link`)
      yield* fs.writeFileString(`${d}/link`, "through")
      yield* fs.symlink("loop", `${d}/loop`)
      yield* fs.symlink("nowhere", `${d}/dangling`)
      yield* fs.symlink(`${d}/target`, `${d}/absolute`)
      return yield* each(
        text(fs, `${d}/target`),
        text(fs, `${d}/absolute`),
        fs.readLink(`${d}/link`),
        fs.readLink(`${d}/target`),
        fs.readLink(`${d}/none`),
        fs.symlink("x", `${d}/target`),
        fs.symlink("x", `${d}/none/x`),
        fs.stat(`${d}/dangling`),
        fs.exists(`${d}/dangling`),
        fs.readFile(`${d}/loop`),
        fs.writeFileString(`${d}/dangling`, "", { flag: "wx" }),
        Effect.map(fs.stat(`${d}/link`), (info) => info.type),
        Effect.map(Effect.all([fs.realPath(`${d}/link`), fs.realPath(`${d}/target`)]), ([a, b]) => a === b),
        Effect.map(Effect.all([fs.realPath(`${d}/.//sub/../link`), fs.realPath(`${d}/target`)]), ([a, b]) => a === b),
        fs.realPath(`${d}/none`)
      )
    }),
  "tells all of a file": (fs, d) =>
    Effect.gen(function* () {
      yield* fs.writeFile(`${d}/a`, bytes, { mode: 0o4751 })
      yield* fs.chmod(`${d}/a`, 0o4751)
      yield* fs.link(`${d}/a`, `${d}/b`)
      yield* fs.utimes(`${d}/a`, 1_000_000_000.25, new Date("2001-02-03T04:05:06.789Z"))
      const info = yield* fs.stat(`${d}/b`)
      const plain = {
        ...info,
        dev: 0,
        ino: Option.isSome(info.ino),
        birthtime: Option.isSome(info.birthtime),
        blksize: Option.isSome(info.blksize)
      }
      return [plain, (yield* fs.stat(d)).type]
    }),
  "makes directories": (fs, d) =>
    Effect.gen(function* () {
      yield* fs.writeFileString(`${d}/file`, "")
      return yield* each(
        fs.makeDirectory(`${d}/a`),
        fs.makeDirectory(`${d}/a`),
        fs.makeDirectory(`${d}/a`, { recursive: true }),
        fs.makeDirectory(`${d}/x/y`),
        fs.makeDirectory(`${d}/x/y/z`, { recursive: true, mode: 0o700 }).pipe(Effect.asVoid),
        mode(fs, `${d}/a`),
        mode(fs, `${d}/x/y/z`),
        fs.makeDirectory(`${d}/m`, { mode: 0o750 }),
        mode(fs, `${d}/m`),
        fs.makeDirectory(`${d}/file`),
        fs.makeDirectory(`${d}/file/x`),
        Effect.map(fs.readDirectory(d), (_) => _.sort())
      )
    }),
  removes: (fs, d) =>
    Effect.gen(function* () {
      yield* fs.makeDirectory(`${d}/tree/sub`, { recursive: true })
      yield* fs.writeFileString(`${d}/tree/file`, "")
      yield* fs.writeFileString(`${d}/file`, "")
      yield* fs.symlink("tree", `${d}/link`)
      yield* fs.symlink("nowhere", `${d}/dangling`)
      return yield* each(
        fs.remove(`${d}/none`),
        fs.remove(`${d}/none`, { recursive: true }),
        fs.remove(`${d}/none`, { force: true }),
        fs.remove(`${d}/file`),
        fs.remove(`${d}/dangling`),
        fs.makeDirectory(`${d}/empty`),
        fs.remove(`${d}/empty`),
        fs.remove(`${d}/tree`, { force: true }),
        fs.remove("", { recursive: true }),
        Effect.map(fs.readDirectory(`${d}/tree`), (_) => _.sort()),
        fs.remove(`${d}/link`, { recursive: true }),
        Effect.map(fs.readDirectory(`${d}/tree`), (_) => _.sort()),
        fs.remove(`${d}/tree`, { recursive: true }),
        fs.readDirectory(d)
      )
    }),
  renames: (fs, d) =>
    Effect.gen(function* () {
      yield* fs.makeDirectory(`${d}/empty`)
      yield* fs.makeDirectory(`${d}/full/sub`, { recursive: true })
      yield* fs.writeFileString(`${d}/a`, "a")
      yield* fs.writeFileString(`${d}/b`, "b")
      return yield* each(
        fs.rename(`${d}/a`, `${d}/b`),
        text(fs, `${d}/b`),
        fs.rename(`${d}/none`, `${d}/x`),
        fs.rename(`${d}/b`, `${d}/none/x`),
        fs.rename(`${d}/b`, `${d}/empty`),
        fs.rename(`${d}/full`, `${d}/b`),
        fs.rename(`${d}/empty`, `${d}/full`),
        fs.rename(`${d}/full`, `${d}/empty`),
        Effect.map(fs.readDirectory(d, { recursive: true }), (_) => _.sort()),
        fs.rename(`${d}/b`, `${d}/b`)
      )
    }),
  copies: (fs, d) =>
    Effect.gen(function* () {
      yield* fs.makeDirectory(`${d}/tree/sub`, { recursive: true })
      yield* fs.writeFileString(`${d}/tree/file`, "new", { mode: 0o751 })
      yield* fs.writeFileString(`${d}/tree/sub/deep`, "deep")
      yield* fs.chmod(`${d}/tree/file`, 0o777)
      yield* fs.utimes(`${d}/tree/file`, 1_000, 2_000)
      yield* fs.makeDirectory(`${d}/other`)
      yield* fs.writeFileString(`${d}/other/file`, "old")
      return yield* each(
        fs.copy(`${d}/tree`, `${d}/copy`),
        text(fs, `${d}/copy/sub/deep`),
        mode(fs, `${d}/copy/file`),
        fs.copy(`${d}/tree`, `${d}/other`),
        text(fs, `${d}/other/file`),
        text(fs, `${d}/other/sub/deep`),
        fs.copy(`${d}/tree`, `${d}/other`, { overwrite: true, preserveTimestamps: true }),
        text(fs, `${d}/other/file`),
        Effect.map(fs.stat(`${d}/other/file`), (info) => info.mtime),
        fs.copy(`${d}/tree/file`, `${d}/far/away/file`),
        text(fs, `${d}/far/away/file`),
        fs.copy(`${d}/none`, `${d}/x`),
        fs.copyFile(`${d}/tree/file`, `${d}/single`),
        mode(fs, `${d}/single`),
        fs.copyFile(`${d}/none`, `${d}/x`),
        fs.copyFile(`${d}/tree/file`, `${d}/none/x`),
        fs.copyFile(`${d}/tree/sub/deep`, `${d}/single`),
        text(fs, `${d}/single`),
        fs.copyFile(`${d}/single`, `${d}/single`),
        fs.copyFile(`${d}/single`, d),
        fs.copy(`${d}/tree`, `${d}/tree`),
        fs.copy(`${d}/tree`, `${d}/tree/sub/more/tree`),
        fs.symlink("tree/sub", `${d}/inside`),
        fs.copy(`${d}/tree`, `${d}/inside`, { overwrite: true }),
        fs.copy(`${d}/single`, `${d}/single`),
        fs.copy(`${d}/single`, `${d}/tree`),
        fs.copy(`${d}/single`, `${d}/tree`, { overwrite: true }),
        fs.copy(`${d}/tree`, `${d}/single`, { overwrite: true }),
        fs.copy(`${d}/single`, `${d}/inside`, { overwrite: true }),
        text(fs, `${d}/inside`),
        fs.remove(`${d}/inside`),
        Effect.map(fs.readDirectory(d, { recursive: true }), (_) => _.sort())
      )
    }),
  "links, truncates, sets times and owners": (fs, d) =>
    Effect.gen(function* () {
      yield* fs.writeFileString(`${d}/a`, "0123456789")
      return yield* each(
        fs.link(`${d}/a`, `${d}/b`),
        fs.link(`${d}/a`, `${d}/b`),
        fs.link(`${d}/none`, `${d}/c`),
        fs.truncate(`${d}/a`, 4),
        text(fs, `${d}/b`),
        fs.truncate(`${d}/a`, 6n),
        Effect.map(fs.readFile(`${d}/b`), (_) => [..._]),
        fs.truncate(`${d}/a`),
        text(fs, `${d}/a`),
        fs.truncate(`${d}/none`),
        fs.truncate(d),
        fs.utimes(`${d}/none`, 1, 2),
        fs.utimes(`${d}/a`, 1.5, 2),
        Effect.map(fs.stat(`${d}/a`), (info) => [info.atime, info.mtime]),
        fs.chmod(`${d}/none`, 0o644),
        Effect.flatMap(fs.stat(`${d}/a`), (info) =>
          fs.chown(
            `${d}/a`,
            Option.getOrElse(info.uid, () => -1),
            Option.getOrElse(info.gid, () => -1)
          )
        ),
        fs.chown(`${d}/none`, 0, 0)
      )
    }),
  "refuses to open what it cannot": (fs, d) =>
    Effect.gen(function* () {
      yield* fs.writeFileString(`${d}/a`, "")
      return yield* each(
        fs.open(`${d}/none`),
        fs.open(`${d}/none/x`, { flag: "w" }),
        fs.open(`${d}/a`, { flag: "wx" }),
        fs.open(`${d}/a`, { flag: "ax+" }),
        fs.open(d, { flag: "w" }),
        fs.open(`${d}/none`, { flag: "r+" })
      )
    }),
  "makes temporary things": (fs, d) =>
    Effect.gen(function* () {
      const made = yield* fs.makeTempDirectory({ directory: d, prefix: "pre " })
      const file = yield* fs.makeTempFile({ directory: d, prefix: "pre", suffix: ".txt" })
      const [kept, scoped] = yield* Effect.scoped(
        Effect.gen(function* () {
          const directory = yield* fs.makeTempDirectoryScoped({ directory: d })
          const file = yield* fs.makeTempFileScoped({ directory: d })
          yield* fs.writeFileString(`${directory}/x`, "")
          return [
            [yield* fs.exists(directory), yield* text(fs, file)],
            [directory, file]
          ] as const
        })
      )
      return [
        made.startsWith(`${d}/pre `),
        (yield* fs.stat(made)).type,
        yield* mode(fs, made),
        file.startsWith(`${d}/pre`) && file.endsWith(".txt"),
        file.slice(d.length).split("/").length,
        yield* mode(fs, file),
        kept,
        yield* Effect.forEach(scoped, (path) => fs.exists(path)),
        (yield* fs.readDirectory(d)).length,
        yield* outcome(fs.makeTempDirectory({ directory: `${d}/none` })),
        yield* outcome(fs.makeTempFile({ directory: `${d}/none` }))
      ]
    }),
  "reads pieces as streams": (fs, d) =>
    Effect.gen(function* () {
      const path = `${d}/a`
      yield* fs.writeFile(path, bytes.subarray(0, 20))
      return yield* each(
        collected(fs.stream(path)),
        collected(fs.stream(path, { chunkSize: 8 })),
        collected(fs.stream(path, { offset: 15 })),
        collected(fs.stream(path, { offset: 3, bytesToRead: 7, chunkSize: 5 })),
        collected(fs.stream(path, { bytesToRead: 0 })),
        collected(fs.stream(path, { offset: 20 })),
        collected(fs.stream(path, { offset: 100 }))
      )
    }),
  "writes streams": (fs, d) =>
    Effect.gen(function* () {
      const block = new Uint8Array(100_000).map((_, n) => n % 251)
      const source = Stream.range(1, 20).pipe(Stream.map(() => block))
      yield* Stream.run(source, fs.sink(`${d}/a`))
      yield* Stream.run(Stream.make(bytes), fs.sink(`${d}/a`, { flag: "a" }))
      yield* Stream.run(Stream.empty, fs.sink(`${d}/empty`, { mode: 0o600 }))
      const read = yield* fs.readFile(`${d}/a`)
      return [
        read.length,
        Bun.hash(read),
        yield* text(fs, `${d}/empty`),
        yield* mode(fs, `${d}/empty`),
        yield* each(Stream.run(source, fs.sink(`${d}/none/a`)))
      ]
    })
}

/** For sandboxes that have all directories of a system. */
export const systemPrograms: { readonly [name: string]: FileProgram } = {
  "reads files that have no size": (fs) =>
    each(
      Effect.map(collected(fs.stream("/proc/self/mounts")), (_) => _.length > 0),
      Effect.map(fs.readFileString("/proc/self/status"), (_) => _.includes("Pid:"))
    ),
  "knows devices": (fs) => Effect.map(fs.stat("/dev/null"), ({ rdev, type }) => [type, rdev])
}

const text10 = new TextEncoder().encode("0123456789")

/** With what it has to give: Bun's own files do not write where they should. */
export const openFiles = {
  program: ((fs, d) =>
    Effect.gen(function* () {
      const path = `${d}/a`
      const file = yield* fs.open(path, { flag: "w+", mode: 0o640 })
      const buffer = new Uint8Array(4)
      const all = Effect.map(fs.readFileString(path), (_) => _.replaceAll("\0", "_"))
      const decoded = Option.map((bytes: Uint8Array) => new TextDecoder().decode(bytes))
      const results: Array<unknown> = [
        yield* file.write(text10),
        yield* file.read(buffer),
        yield* Effect.zipRight(file.seek(3, "start"), file.read(buffer)),
        new TextDecoder().decode(buffer),
        decoded(yield* file.readAlloc(100)),
        decoded(yield* file.readAlloc(10)),
        yield* Effect.zipRight(file.seek(-2, "current"), file.writeAll(new TextEncoder().encode("xyz"))),
        yield* all,
        yield* Effect.map(file.stat, (info) => [info.type, info.size, info.mode]),
        yield* file.truncate(5),
        yield* all,
        yield* file.sync,
        yield* Effect.zipRight(file.seek(7, "start"), file.writeAll(new TextEncoder().encode("end"))),
        yield* all
      ]
      const appending = yield* fs.open(path, { flag: "a+" })
      yield* appending.writeAll(new TextEncoder().encode("!"))
      yield* appending.seek(0, "start")
      yield* appending.writeAll(new Uint8Array(100_000).fill(46))
      results.push(decoded(yield* appending.readAlloc(3)), (yield* all).length)
      const reading = yield* fs.open(path)
      const writing = yield* fs.open(path, { flag: "w" })
      results.push(yield* outcome(reading.write(text10)), yield* outcome(writing.readAlloc(1)))
      return results
    })) satisfies FileProgram,
  gives: [
    10n,
    0n,
    4n,
    "3456",
    Option.some("789"),
    Option.none(),
    undefined,
    "01234567xyz",
    ["File", 11n, 0o100640],
    undefined,
    "01234",
    undefined,
    undefined,
    "01234__end",
    Option.some("012"),
    100_011,
    { failed: ["Unknown", "FileSystem", "write"] },
    { failed: ["Unknown", "FileSystem", "readAlloc"] }
  ]
}
