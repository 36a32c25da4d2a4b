import { createHash } from "node:crypto"
import { assert, describe, it } from "@effect/vitest"
import { Execd, OpenSandbox } from "@sandglass/core"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Stream from "effect/Stream"
import * as MockHttp from "../support/MockHttp.js"
import * as ScriptedServer from "../support/ScriptedServer.js"

const { json, stream, text } = ScriptedServer

const withExecd = <A, E, R>(
  handler: ScriptedServer.Handler,
  use: (
    client: Execd.ExecdClient,
    requests: () => ReadonlyArray<ScriptedServer.RecordedRequest>
  ) => Effect.Effect<A, E, R>
) =>
  Effect.flatMap(
    ScriptedServer.make((request, index) =>
      request.path.startsWith("/v1/") ? json(200, { endpoint: request.headers.host }) : handler(request, index)
    ),
    (server) =>
      Effect.gen(function* () {
        const client = yield* Effect.flatMap(Execd.Execd, (execd) => execd.connect("s1"))
        return yield* use(client, () => server.requests.filter(({ path }) => !path.startsWith("/v1/")))
      }).pipe(
        Effect.provide(
          Layer.provide(Execd.layerWith({ retry: { baseDelay: 1 } }), OpenSandbox.layer({ url: server.url }))
        )
      )
  )

interface Part {
  readonly headers: string
  readonly content: Buffer
}

/** The parts of a `multipart/form-data` body, by the letter of RFC 2046. */
const partsOf = (request: ScriptedServer.RecordedRequest | undefined): ReadonlyArray<Part> => {
  const boundary = /boundary=(\S+)/.exec(request?.headers["content-type"] ?? "")?.[1]
  assert.isString(boundary)
  const body = request?.body ?? Buffer.alloc(0)
  const delimiter = Buffer.from(`\r\n--${boundary}`)
  const parts: Array<Part> = []
  let position = body.indexOf(delimiter.subarray(2)) + delimiter.length - 2
  while (body.toString("latin1", position, position + 2) === "\r\n") {
    const head = body.indexOf("\r\n\r\n", position)
    const end = body.indexOf(delimiter, head + 2)
    parts.push({ headers: body.toString("utf8", position + 2, head), content: body.subarray(head + 4, end) })
    position = end + delimiter.length
  }
  assert.strictEqual(body.toString("latin1", position), "--\r\n")
  return parts
}

const nameOf = (part: Part) => /name="([^"]*)"/.exec(part.headers)?.[1]
const hash = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex")

const bytesOf = <E>(self: Stream.Stream<Uint8Array, E>) =>
  Effect.map(Stream.runCollect(self), (chunks) => Buffer.concat([...chunks]))

const names = ["/报告 100%.csv", "/a+b&c=#?.txt", "-rf", "/a\nb", '/"quoted"\\.txt', "/é", "/ ", "/a\r\n\r\n--x"]
const every = Buffer.from(Array.from({ length: 256 }, (_, i) => i))
const attachment = { "content-type": "application/octet-stream", "content-disposition": "attachment; filename=x" }

describe("upload", () => {
  it.scopedLive("a metadata part and a file part for each file, byte by byte", () =>
    withExecd(
      () => ScriptedServer.empty(200),
      (client, requests) =>
        Effect.gen(function* () {
          yield* client.upload([
            { path: "/all", content: every, mode: 0o755, owner: "me", group: "us" },
            { path: "/empty", content: "" },
            { path: "/text", content: "é漢👩‍👩‍👧\r\n--boundary", mode: "644" },
            { path: "/stream", content: Stream.make(every.subarray(0, 100), new Uint8Array(0), every.subarray(100)) }
          ])
          const [request] = requests()
          assert.strictEqual(`${request?.method} ${request?.path}`, "POST /files/upload")
          const parts = partsOf(request)
          assert.deepStrictEqual(
            parts.map(nameOf),
            Array.from({ length: 8 }, (_, i) => (i % 2 === 0 ? "metadata" : "file"))
          )
          for (const part of parts) assert.match(part.headers, /filename="[A-Za-z0-9._-]+"/)
          assert.deepStrictEqual(
            parts.filter((_, i) => i % 2 === 0).map(({ content }) => JSON.parse(content.toString("utf8")) as unknown),
            [
              { path: "/all", owner: "me", group: "us", mode: 755 },
              { path: "/empty" },
              { path: "/text", mode: 644 },
              { path: "/stream" }
            ]
          )
          assert.deepStrictEqual(
            parts.filter((_, i) => i % 2 === 1).map(({ content }) => Buffer.from(content)),
            [every, Buffer.alloc(0), Buffer.from("é漢👩‍👩‍👧\r\n--boundary"), every]
          )
        })
    )
  )

  it.scopedLive("any name", () =>
    withExecd(
      () => ScriptedServer.empty(200),
      (client, requests) =>
        Effect.gen(function* () {
          yield* client.upload(names.map((path) => ({ path, content: path })))
          const parts = partsOf(requests()[0])
          assert.deepStrictEqual(
            parts
              .filter((part) => nameOf(part) === "metadata")
              .map(({ content }) => (JSON.parse(content.toString("utf8")) as { path: string }).path),
            names
          )
          assert.deepStrictEqual(
            parts.filter((part) => nameOf(part) === "file").map(({ content }) => content.toString("utf8")),
            names
          )
        })
    )
  )

  it.scopedLive("50 MB from a stream, and a text across many pieces", () =>
    withExecd(
      () => ScriptedServer.empty(200),
      (client, requests) =>
        Effect.gen(function* () {
          const block = Buffer.alloc(1_000_000, every)
          const long = `x${"😀".repeat(400_000)}`
          yield* client.upload([
            { path: "/big", content: Stream.take(Stream.repeatValue(block), 50) },
            { path: "/long", content: long },
            { path: "/bytes", content: block }
          ])
          const parts = partsOf(requests()[0])
          const expected = createHash("sha256")
          for (let i = 0; i < 50; i++) expected.update(block)
          assert.strictEqual(parts[1]?.content.length, 50_000_000)
          assert.strictEqual(hash(parts[1]?.content ?? every), expected.digest("hex"))
          assert.strictEqual(hash(parts[3]?.content ?? every), hash(Buffer.from(long)))
          assert.strictEqual(hash(parts[5]?.content ?? every), hash(block))
        })
    )
  )

  it.scopedLive("is sent once, and names the file whose content failed", () =>
    withExecd(
      () => text(502, "Bad Gateway"),
      (client, requests) =>
        Effect.gen(function* () {
          assert.strictEqual((yield* Effect.flip(client.upload([{ path: "/a", content: "x" }]))).status, 502)
          assert.lengthOf(requests(), 1)
          const error = yield* Effect.flip(
            client.upload([{ path: "/broken", content: Stream.concat(Stream.make(every), Stream.fail("disk")) }])
          )
          assert.strictEqual(error.reason, "InvalidRequest")
          assert.include(error.description, "/broken")
        })
    )
  )

  it.scopedLive("refuses bad paths and modes, and sends nothing for nothing", () =>
    withExecd(
      () => ScriptedServer.empty(200),
      (client, requests) =>
        Effect.gen(function* () {
          const bad: ReadonlyArray<Execd.UploadFile> = [
            { path: "", content: "x" },
            { path: "/a", content: "x", mode: "rwx" },
            { path: "/a", content: "x", mode: "799" },
            { path: "/a", content: "x", mode: "" },
            { path: "/a", content: "x", mode: "77777" },
            { path: "/a", content: "x", mode: 0o10000 },
            { path: "/a", content: "x", mode: -1 },
            { path: "/a", content: "x", mode: 1.5 }
          ]
          for (const file of bad) {
            assert.strictEqual(
              (yield* Effect.flip(client.upload([file]))).reason,
              "InvalidRequest",
              JSON.stringify(file)
            )
          }
          yield* client.upload([])
          yield* client.move([])
          yield* client.removeFiles([])
          yield* client.removeDirectories([])
          yield* client.setPermissions({})
          yield* client.makeDirectories({})
          assert.strictEqual((yield* client.info([])).size, 0)
          assert.strictEqual((yield* client.replace({})).size, 0)
          assert.lengthOf(requests(), 0)
        })
    )
  )
})

describe("modes", () => {
  it.scopedLive("go as octal digits", () =>
    withExecd(
      () => ScriptedServer.empty(200),
      (client, requests) =>
        Effect.gen(function* () {
          const modes: ReadonlyArray<readonly [Execd.Mode, number]> = [
            [0o755, 755],
            ["755", 755],
            ["0755", 755],
            ["0o644", 644],
            [0o4755, 4755],
            ["1777", 1777],
            [0, 0],
            ["000", 0],
            [0o7, 7]
          ]
          for (const [mode, wire] of modes) {
            yield* client.setPermissions({ "/a b": { mode, owner: "me" } })
            assert.deepStrictEqual(requests().at(-1)?.json, { "/a b": { owner: "me", mode: wire } })
          }
          assert.strictEqual(requests()[0]?.path, "/files/permissions")
          yield* client.makeDirectories({ "/d": {}, "/e": { mode: "700" } })
          assert.deepStrictEqual(requests().at(-1)?.json, { "/d": { mode: 755 }, "/e": { mode: 700 } })
          assert.strictEqual(requests().at(-1)?.path, "/directories")
        })
    )
  )

  it.scopedLive("that are not given stay as they are", () =>
    withExecd(
      ({ method }) =>
        method === "GET" ? json(200, { "/a": { path: "/a", size: 1, mode: 640 } }) : ScriptedServer.empty(200),
      (client, requests) =>
        Effect.gen(function* () {
          yield* client.setPermissions({ "/a": { owner: "me" }, "/b": { mode: "600" } })
          assert.deepStrictEqual(requests()[0]?.query.getAll("path"), ["/a"])
          assert.deepStrictEqual(requests()[1]?.json, { "/a": { owner: "me", mode: 640 }, "/b": { mode: 600 } })
        })
    )
  )
})

describe("download", () => {
  for (const [name, framing] of [
    ["by length", "length"],
    ["in chunks", "chunked"],
    ["to the end", "close"]
  ] as const) {
    it.scopedLive(`all byte values and an empty file, ${name}`, () =>
      withExecd(
        (request) => stream([request.query.get("path") === "/empty" ? "" : every], { headers: attachment, framing }),
        (client) =>
          Effect.gen(function* () {
            assert.deepStrictEqual(yield* bytesOf(client.download("/all")), every)
            assert.deepStrictEqual(yield* bytesOf(client.download("/empty")), Buffer.alloc(0))
          })
      )
    )
  }

  it.scopedLive("50 MB, and any name", () =>
    withExecd(
      (request) =>
        stream(
          request.query.get("path") === "/big"
            ? Array.from({ length: 50 }, () => Buffer.alloc(1_000_000, every))
            : [request.query.get("path") ?? ""],
          { headers: attachment, framing: "length" }
        ),
      (client) =>
        Effect.gen(function* () {
          const digest = createHash("sha256")
          let size = 0
          yield* Stream.runForEach(client.download("/big"), (chunk) =>
            Effect.sync(() => {
              digest.update(chunk)
              size += chunk.length
            })
          )
          const expected = createHash("sha256")
          for (let i = 0; i < 50; i++) expected.update(Buffer.alloc(1_000_000, every))
          assert.strictEqual(size, 50_000_000)
          assert.strictEqual(digest.digest("hex"), expected.digest("hex"))
          for (const name of names) {
            assert.strictEqual((yield* bytesOf(client.download(name))).toString("utf8"), name)
          }
        })
    )
  )

  it.scopedLive("ranges, honoured by the server or not", () => {
    let honour = true
    return withExecd(
      (request) => {
        const range = /^bytes=(\d+)-(\d*)$/.exec(request.headers["range"] ?? "")
        if (range === null || !honour)
          return stream([every.subarray(0, 70), every.subarray(70)], { headers: attachment })
        const part = every.subarray(Number(range[1]), range[2] === "" ? undefined : Number(range[2]) + 1)
        return stream([part], { status: 206, headers: attachment, framing: "length" })
      },
      (client, requests) =>
        Effect.gen(function* () {
          for (const honoured of [true, false]) {
            honour = honoured
            assert.deepStrictEqual(yield* bytesOf(client.download("/f", { offset: 60 })), every.subarray(60))
            assert.deepStrictEqual(
              yield* bytesOf(client.download("/f", { offset: 60, length: 20 })),
              every.subarray(60, 80)
            )
            assert.deepStrictEqual(yield* bytesOf(client.download("/f", { length: 5 })), every.subarray(0, 5))
            assert.deepStrictEqual(
              yield* bytesOf(client.download("/f", { offset: 100, length: 1000 })),
              every.subarray(100)
            )
            assert.deepStrictEqual(yield* bytesOf(client.download("/f", { length: 0 })), Buffer.alloc(0))
          }
          assert.deepStrictEqual(
            requests()
              .slice(0, 4)
              .map(({ headers }) => headers["range"]),
            ["bytes=60-", "bytes=60-79", "bytes=0-4", "bytes=100-1099"]
          )
          for (const range of [{ offset: -1 }, { length: -1 }, { offset: 1.5 }, { length: Number.NaN }]) {
            assert.strictEqual((yield* Effect.flip(bytesOf(client.download("/f", range)))).reason, "InvalidRequest")
          }
        })
    )
  })

  it.scopedLive("an error document is an error, before any byte", () =>
    withExecd(
      ScriptedServer.sequence(
        json(200, { code: "FILE_NOT_FOUND", message: "file not found" }),
        json(200, { error: "Unauthorized: invalid token" }),
        json(500, { code: "RUNTIME_ERROR", message: "error opening file: open /x: no such file or directory" }),
        json(404, { code: "FILE_NOT_FOUND", message: "file not found" }),
        json(500, { code: "RUNTIME_ERROR", message: "permission denied" }),
        json(416, { code: "INVALID_RANGE", message: "bad range" })
      ),
      (client, requests) =>
        Effect.gen(function* () {
          const fail = Effect.suspend(() => {
            let delivered = 0
            return client.download("/x").pipe(
              Stream.runForEach(() => Effect.sync(() => delivered++)),
              Effect.flip,
              Effect.tap(() => Effect.sync(() => assert.strictEqual(delivered, 0)))
            )
          })
          assert.deepInclude(yield* fail, { reason: "NotFound", code: "FILE_NOT_FOUND", description: "file not found" })
          assert.deepInclude(yield* fail, { reason: "ServerError", description: "Unauthorized: invalid token" })
          assert.deepInclude(yield* fail, { reason: "NotFound", status: 500, code: "RUNTIME_ERROR" })
          assert.deepInclude(yield* fail, { reason: "NotFound", status: 404 })
          assert.deepInclude(yield* fail, { reason: "ServerError", status: 500, description: "permission denied" })
          assert.deepInclude(yield* fail, { reason: "InvalidRequest", status: 416 })
          assert.lengthOf(requests(), 6)
        })
    )
  )

  it.scopedLive("a JSON file is a file", () => {
    const error = `{"code":"X","message":"just data"}`
    const data = `{"code":"X","values":[1,2,3]}`
    const large = JSON.stringify({ code: "X", message: "y".repeat(200_000) })
    return withExecd(
      ScriptedServer.sequence(
        text(200, error, { "content-type": "application/json", "content-disposition": "attachment; filename=a.json" }),
        text(206, error, { "content-type": "application/json" }),
        text(200, error, attachment),
        text(200, data, { "content-type": "application/json" }),
        text(200, large, { "content-type": "application/json" }),
        stream([large.slice(0, 100_000), large.slice(100_000)], { headers: { "content-type": "application/json" } }),
        text(200, "{ not json", { "content-type": "application/json" }),
        text(200, "", { "content-type": "application/json" }),
        text(200, "[]", { "content-type": "application/json" })
      ),
      (client) =>
        Effect.gen(function* () {
          for (const expected of [error, error, error, data, large, large, "{ not json", "", "[]"]) {
            assert.strictEqual((yield* bytesOf(client.download("/a.json"))).toString("utf8"), expected)
          }
        })
    )
  })

  it.scopedLive("a file that breaks off is an error", () =>
    withExecd(
      () =>
        stream([every, ScriptedServer.sleep(200), ScriptedServer.drop], {
          framing: "length",
          headers: { ...attachment, "content-length": "1000" }
        }),
      (client) =>
        Effect.map(Effect.flip(bytesOf(client.download("/x"))), (error) =>
          assert.strictEqual(error.reason, "Transport")
        )
    )
  )

  it.scopedLive("its start is repeated, and ending it early frees the socket", () =>
    withExecd(
      ScriptedServer.sequence(
        text(503, "later"),
        ScriptedServer.resetConnection,
        stream([every, ScriptedServer.hold], { headers: attachment })
      ),
      (client, requests) =>
        Effect.gen(function* () {
          assert.deepStrictEqual(yield* bytesOf(Stream.take(client.download("/x"), 1)), every)
          assert.lengthOf(requests(), 3)
          const last = requests().at(-1)
          if (last !== undefined) yield* last.disconnected
        })
    )
  )
})

describe("paths", () => {
  const info = (path: string) => ({
    path,
    type: "file",
    size: 5,
    modified_at: "2026-01-01T00:00:00.5Z",
    created_at: "0001-01-01T00:00:00Z",
    owner: "me",
    group: "us",
    mode: 644,
    inode: 7
  })

  it.scopedLive("info: a map by path, in as many requests as the paths need", () =>
    withExecd(
      (request) => json(200, Object.fromEntries(request.query.getAll("path").map((path) => [path, info(path)]))),
      (client, requests) =>
        Effect.gen(function* () {
          const few = yield* client.info(names)
          assert.deepStrictEqual([...few.keys()], names)
          assert.deepStrictEqual(few.get("-rf"), {
            path: "-rf",
            type: "file",
            size: 5,
            mode: "644",
            owner: "me",
            group: "us",
            modifiedAt: Date.UTC(2026, 0, 1) + 500,
            createdAt: undefined
          })
          const many = Array.from({ length: 1000 }, (_, i) => `/dir/报告 ${i}`)
          assert.deepStrictEqual([...(yield* client.info(many)).keys()], many)
          assert.isAbove(requests().length, 2)
          for (const { target } of requests()) assert.isBelow(target.length, 8000)
          assert.strictEqual((yield* Effect.flip(client.info(["/a", ""]))).reason, "InvalidRequest")
        })
    )
  )

  it.scopedLive("info: a missing one, whatever the status", () =>
    withExecd(
      ScriptedServer.sequence(
        json(404, { code: "FILE_NOT_FOUND", message: "x" }),
        json(500, { code: "RUNTIME_ERROR", message: "stat /x: no such file or directory" }),
        json(200, null)
      ),
      (client) =>
        Effect.gen(function* () {
          assert.strictEqual((yield* Effect.flip(client.info(["/x"]))).reason, "NotFound")
          assert.strictEqual((yield* Effect.flip(client.info(["/x"]))).reason, "NotFound")
          assert.strictEqual((yield* client.info(["/x"])).size, 0)
        })
    )
  )

  it.scopedLive("search and list", () =>
    withExecd(
      ScriptedServer.sequence(
        json(200, [info("/a"), { path: "/b" }]),
        json(200, null),
        json(200, [info("/d")]),
        json(200, []),
        json(400, { code: "INVALID", message: "is a symlink" })
      ),
      (client, requests) =>
        Effect.gen(function* () {
          const found = yield* client.search("/报告 100%", "**/*.c&v")
          assert.deepStrictEqual(
            found.map(({ mode, path, size }) => [path, size, mode]),
            [
              ["/a", 5, "644"],
              ["/b", 0, ""]
            ]
          )
          assert.deepStrictEqual(yield* client.search("/"), [])
          assert.strictEqual((yield* client.listDirectory("/", { depth: 3 })).length, 1)
          yield* client.listDirectory("a+b")
          assert.strictEqual((yield* Effect.flip(client.listDirectory("/link"))).reason, "InvalidRequest")
          assert.strictEqual((yield* Effect.flip(client.listDirectory("/", { depth: -1 }))).reason, "InvalidRequest")
          assert.deepStrictEqual(
            requests().map(({ path, query }) => [path, ...query.entries()]),
            [
              ["/files/search", ["path", "/报告 100%"], ["pattern", "**/*.c&v"]],
              ["/files/search", ["path", "/"]],
              ["/directories/list", ["path", "/"], ["depth", "3"]],
              ["/directories/list", ["path", "a+b"]],
              ["/directories/list", ["path", "/link"]]
            ]
          )
        })
    )
  )

  it.scopedLive("move, replace, remove", () =>
    withExecd(
      (request) =>
        request.path === "/files/replace"
          ? json(200, { "/a": { replacedCount: 2 }, "/b": { replacedCount: 0 } })
          : ScriptedServer.empty(200),
      (client, requests) =>
        Effect.gen(function* () {
          yield* client.move([{ from: names[0] ?? "", to: names[3] ?? "" }])
          const counts = yield* client.replace({ "/a": { old: "x", new: "" }, "/b": { old: "\n", new: "z" } })
          assert.deepStrictEqual(
            [...counts],
            [
              ["/a", 2],
              ["/b", 0]
            ]
          )
          yield* client.removeFiles(names)
          yield* client.removeDirectories(["/d e"])
          assert.strictEqual(
            (yield* Effect.flip(client.replace({ "/a": { old: "", new: "x" } }))).reason,
            "InvalidRequest"
          )
          const [move, replace, files, directories] = requests()
          assert.strictEqual(`${move?.method} ${move?.target}`, "POST /files/mv")
          assert.deepStrictEqual(move?.json, [{ src: names[0], dest: names[3] }])
          assert.strictEqual(`${replace?.method} ${replace?.target}`, "POST /files/replace?verbose=true")
          assert.deepStrictEqual(replace?.json, { "/a": { old: "x", new: "" }, "/b": { old: "\n", new: "z" } })
          assert.strictEqual(`${files?.method} ${files?.path}`, "DELETE /files")
          assert.deepStrictEqual(files?.query.getAll("path"), names)
          assert.strictEqual(`${directories?.method} ${directories?.target}`, "DELETE /directories?path=%2Fd+e")
        })
    )
  )

  it.effect("a removal whose answer was lost is not an error the second time", () => {
    let attempts = 0
    const mock = MockHttp.make(({ url }) =>
      url.pathname.startsWith("/v1/")
        ? MockHttp.json(200, { endpoint: "execd:1" })
        : attempts++ === 0
          ? new MockHttp.ConnectionFailed()
          : MockHttp.json(404, { code: "FILE_NOT_FOUND", message: "x" })
    )
    return Effect.gen(function* () {
      const client = yield* Effect.flatMap(Execd.Execd, (execd) => execd.connect("s1"))
      yield* client.removeFiles(["/a"])
      assert.strictEqual(attempts, 2)
      assert.strictEqual((yield* Effect.flip(client.removeFiles(["/a"]))).reason, "NotFound")
    }).pipe(Effect.provide(Layer.provide(Execd.layer, Layer.provide(OpenSandbox.layerWithoutHttpClient(), mock.layer))))
  })
})
