/** @internal */

import * as Fs from "node:fs"
import * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import * as HttpServerResponse from "@effect/platform/HttpServerResponse"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as ParseResult from "effect/ParseResult"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import type { ApiError } from "./apiError.js"
import { badRequest, fromErrno } from "./apiError.js"
import * as Files from "./files.js"
import { attempt, body, empty, json, query } from "./http.js"
import type { MultipartEvent } from "./multipart.js"
import { boundaryOf, MultipartParser } from "./multipart.js"
import type { Root } from "./rooted.js"
import { closeQuietly } from "./rooted.js"
import type { Handler, Route } from "./routes.js"
import { route } from "./routes.js"

const Mode = Schema.Union(Schema.NonNegativeInt, Schema.String)
const PermissionFields = {
  mode: Schema.optionalWith(Mode, { nullable: true }),
  owner: Schema.optionalWith(Schema.String, { nullable: true }),
  group: Schema.optionalWith(Schema.String, { nullable: true })
}
const Permissions = Schema.Record({ key: Schema.String, value: Schema.Struct(PermissionFields) })
const Metadata = Schema.parseJson(Schema.Struct({ path: Schema.NonEmptyString, ...PermissionFields }))
const Moves = Schema.Array(Schema.Struct({ src: Schema.String, dest: Schema.String }))
const Replacements = Schema.Record({
  key: Schema.String,
  value: Schema.Struct({ old: Schema.NonEmptyString, new: Schema.String })
})

const invalidBody = (message: string) => badRequest(message, "INVALID_REQUEST_BODY")

const paths = Effect.flatMap(query, (params) => {
  const given = params.getAll("path")
  return given.length === 0 ? Effect.fail(badRequest("path is missing")) : Effect.succeed(given)
})

const onePath = Effect.map(paths, (given) => given[0] ?? "")

const filesInfo: Handler = (sandbox) =>
  Effect.flatMap(paths, (given) =>
    attempt(() => json(Object.fromEntries(given.map((path) => [path, Files.info(sandbox.instance.root, path)]))))
  )

const removeFiles: Handler = (sandbox, sandboxes) =>
  Effect.flatMap(paths, (given) =>
    sandboxes.working(
      sandbox,
      attempt(() => {
        for (const path of given) Files.removeFile(sandbox.instance.root, path)
        return empty(200)
      })
    )
  )

const permissions: Handler = (sandbox, sandboxes) =>
  Effect.flatMap(body(Permissions, invalidBody), (entries) =>
    sandboxes.working(
      sandbox,
      attempt(() => {
        for (const [path, permission] of Object.entries(entries))
          Files.setPermission(sandbox.instance.root, path, permission)
        return empty(200)
      })
    )
  )

const move: Handler = (sandbox, sandboxes) =>
  Effect.flatMap(body(Moves, invalidBody), (moves) =>
    sandboxes.working(
      sandbox,
      attempt(() => {
        for (const { dest, src } of moves) Files.move(sandbox.instance.root, src, dest)
        return empty(200)
      })
    )
  )

const replace: Handler = (sandbox, sandboxes) =>
  Effect.gen(function* () {
    const entries = yield* body(Replacements, invalidBody)
    const verbose = (yield* query).get("verbose") === "true"
    return yield* sandboxes.working(
      sandbox,
      attempt(() => {
        const counts = Object.entries(entries).map(
          ([path, item]) =>
            [path, { replacedCount: Files.replace(sandbox.instance.root, path, item.old, item.new) }] as const
        )
        return verbose ? json(Object.fromEntries(counts)) : empty(200)
      })
    )
  })

/** Walks a tree directory by directory, letting other requests go on in between. */
const collect = (
  walk: Generator<ReadonlyArray<Files.FileInfo & { readonly relative: string }>>,
  wanted: (entry: Files.FileInfo & { readonly relative: string }) => boolean
): Effect.Effect<Array<Files.FileInfo>, ApiError> => {
  const found: Array<Files.FileInfo> = []
  const step: Effect.Effect<Array<Files.FileInfo>, ApiError> = Effect.flatMap(
    attempt(() => walk.next()),
    (result) => {
      if (result.done === true) return Effect.succeed(found)
      for (const entry of result.value) {
        if (!wanted(entry)) continue
        const { relative: _, ...info } = entry
        found.push(info)
      }
      return Effect.zipRight(Effect.yieldNow(), step)
    }
  )
  return Effect.ensuring(
    step,
    Effect.sync(() => walk.return(undefined))
  )
}

const search: Handler = (sandbox) =>
  Effect.gen(function* () {
    const path = yield* onePath
    const pattern = (yield* query).get("pattern") || "**"
    const matches = yield* attempt(() => Files.globMatcher(pattern))
    return json(
      yield* collect(
        Files.walk(sandbox.instance.root, path, Number.POSITIVE_INFINITY, true),
        (entry) => entry.type !== "directory" && matches(entry.relative)
      )
    )
  })

const listDirectory: Handler = (sandbox) =>
  Effect.gen(function* () {
    const path = yield* onePath
    const depth = (yield* query).get("depth") ?? "1"
    if (!/^\d{1,9}$/.test(depth)) return yield* badRequest(`depth must be a number, not ${depth}`)
    return json(yield* collect(Files.walk(sandbox.instance.root, path, Number(depth), false), () => true))
  })

const makeDirectories: Handler = (sandbox, sandboxes) =>
  Effect.flatMap(body(Permissions, invalidBody), (entries) =>
    sandboxes.working(
      sandbox,
      attempt(() => {
        for (const [path, permission] of Object.entries(entries))
          Files.makeDirectory(sandbox.instance.root, path, permission)
        return empty(200)
      })
    )
  )

const removeDirectories: Handler = (sandbox, sandboxes) =>
  Effect.flatMap(paths, (given) =>
    sandboxes.working(
      sandbox,
      attempt(() => {
        for (const path of given) Files.removeDirectory(sandbox.instance.root, path)
        return empty(200)
      })
    )
  )

const write = (fd: number, bytes: Uint8Array, path: string): Effect.Effect<void, ApiError> =>
  Effect.async<number, ApiError>((resume) => {
    Fs.write(fd, bytes, 0, bytes.length, null, (cause, written) =>
      resume(cause === null ? Effect.succeed(written) : Effect.fail(fromErrno(path)(cause)))
    )
  }).pipe(
    Effect.uninterruptible,
    Effect.flatMap((written) => (written < bytes.length ? write(fd, bytes.subarray(written), path) : Effect.void))
  )

const METADATA_LIMIT = 1024 * 1024

/** What comes of the parts of one upload, in order: for each file its metadata, then its content. */
class Upload {
  private part: "metadata" | "file" | "other" = "other"
  private text: Array<Uint8Array> = []
  private textLength = 0
  private metadata: typeof Metadata.Type | undefined
  private file: { readonly fd: number; readonly path: string } | undefined
  private files = 0

  constructor(private readonly root: Root) {}

  handle(event: MultipartEvent): Effect.Effect<void, ApiError> {
    switch (event._tag) {
      case "Part":
        return this.begin(event.name)
      case "Data":
        if (this.file !== undefined) return write(this.file.fd, event.bytes, this.file.path)
        if (this.part !== "metadata") return Effect.void
        this.text.push(Buffer.from(event.bytes))
        this.textLength += event.bytes.length
        return this.textLength > METADATA_LIMIT
          ? Effect.fail(invalidBody("the metadata part is too long"))
          : Effect.void
      case "End":
        return this.part === "metadata" ? this.readMetadata : Effect.sync(() => this.close())
    }
  }

  readonly complete: Effect.Effect<void, ApiError> = Effect.suspend(() =>
    this.metadata !== undefined
      ? Effect.fail(invalidBody("a metadata part without its file part"))
      : this.files === 0
        ? Effect.fail(invalidBody("no file part"))
        : Effect.void
  )

  close(): void {
    if (this.file !== undefined) closeQuietly(this.file.fd)
    this.file = undefined
  }

  private begin(name: string): Effect.Effect<void, ApiError> {
    this.part = name === "metadata" || name === "file" ? name : "other"
    this.text = []
    this.textLength = 0
    if (this.part !== "file") return Effect.void
    const { metadata } = this
    if (metadata === undefined) return Effect.fail(invalidBody("a file part without its metadata part"))
    const { path, ...permission } = metadata
    this.metadata = undefined
    this.files++
    return attempt(() => {
      this.file = { fd: Files.openForUpload(this.root, path, permission), path }
    })
  }

  private readonly readMetadata: Effect.Effect<void, ApiError> = Effect.suspend(() =>
    Schema.decodeUnknown(Metadata)(Buffer.concat(this.text).toString("utf8"))
  ).pipe(
    Effect.mapBoth({
      onFailure: (error) => invalidBody(ParseResult.TreeFormatter.formatErrorSync(error)),
      onSuccess: (metadata) => {
        this.metadata = metadata
      }
    })
  )
}

const upload: Handler = (sandbox, sandboxes) =>
  Effect.gen(function* () {
    const request = yield* HttpServerRequest.HttpServerRequest
    const boundary = boundaryOf(request.headers["content-type"] ?? "")
    if (boundary === undefined) return yield* invalidBody("an upload is multipart/form-data with a boundary")
    const parser = new MultipartParser(boundary)
    const malformed = (cause: unknown) => invalidBody(cause instanceof Error ? cause.message : String(cause))
    // On its own, until the answer has been sent: interrupting it closes the connection, which Bun answers with 200.
    const receiving = yield* Effect.forkScoped(
      Effect.acquireUseRelease(
        Effect.sync(() => new Upload(sandbox.instance.root)),
        (files) => {
          let refused: ApiError | undefined
          const handle = (bytes: Uint8Array) =>
            Effect.try({ try: () => parser.push(bytes), catch: malformed }).pipe(
              // Piece by piece, so that nothing waits for a client that takes its time: a snapshot may come in between.
              Effect.flatMap((events) =>
                sandboxes.working(
                  sandbox,
                  Effect.forEach(events, (event) => files.handle(event), { discard: true })
                )
              ),
              Effect.catchAll((error) =>
                Effect.sync(() => {
                  refused = error
                })
              )
            )
          return request.stream.pipe(
            Stream.mapError(() => invalidBody("the request body could not be read")),
            // To its end, since a client that is still sending does not see an answer.
            Stream.runForEach((bytes) => (refused === undefined ? handle(bytes) : Effect.void)),
            Effect.zipRight(
              Effect.suspend(() =>
                refused === undefined ? Effect.try({ try: () => parser.end(), catch: malformed }) : Effect.fail(refused)
              )
            ),
            Effect.zipRight(files.complete)
          )
        },
        (files) => Effect.sync(() => files.close())
      )
    )
    yield* sandboxes.attended(sandbox, Fiber.join(receiving))
    return empty(200)
  })

const READ_SIZE = 256 * 1024

const readAt = (fd: number, length: number, position: number): Effect.Effect<Uint8Array, ApiError> =>
  Effect.uninterruptible(
    Effect.async((resume) => {
      const bytes = Buffer.allocUnsafe(length)
      Fs.read(fd, bytes, 0, length, position, (cause, read) =>
        resume(cause === null ? Effect.succeed(bytes.subarray(0, read)) : Effect.fail(fromErrno("")(cause)))
      )
    })
  )

/** The first range of a `Range` header. `undefined`: none, or none that we understand, which means the whole file. */
const parseRange = (
  header: string | undefined,
  size: number
): { readonly start: number; readonly end: number } | "unsatisfiable" | undefined => {
  const match = /^bytes=(\d*)-(\d*)$/.exec(header?.trim() ?? "")
  if (match === null || (match[1] === "" && match[2] === "")) return undefined
  const [, first = "", last = ""] = match
  const start = first === "" ? Math.max(0, size - Number(last)) : Number(first)
  const end = first === "" || last === "" ? size - 1 : Math.min(Number(last), size - 1)
  if (first !== "" && last !== "" && Number(last) < Number(first)) return undefined
  return start >= size || end < start ? "unsatisfiable" : { start, end }
}

const disposition = (name: string): string =>
  `attachment; filename="${name.replace(/[^\x20-\x7e]|["\\%]/g, "_")}"; filename*=UTF-8''${encodeURIComponent(
    name
  ).replace(/['()*]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`)}`

const download: Handler = (sandbox) =>
  Effect.gen(function* () {
    const path = yield* onePath
    const request = yield* HttpServerRequest.HttpServerRequest
    // The scope is the request's: it ends when the answer has been sent, or the client has gone.
    const file = yield* Effect.acquireRelease(
      attempt(() => Files.openForDownload(sandbox.instance.root, path)),
      ({ fd }) => Effect.sync(() => closeQuietly(fd))
    )
    const range = parseRange(request.headers.range, file.size)
    if (range === "unsatisfiable") {
      return json({ code: "RANGE_NOT_SATISFIABLE", message: `${path} has ${file.size} bytes` }, 416, {
        "content-range": `bytes */${file.size}`
      })
    }
    const start = range?.start ?? 0
    const length = range === undefined ? file.size : range.end - range.start + 1
    let done = 0
    const content = Stream.repeatEffectOption(
      Effect.suspend(() =>
        done >= length
          ? Effect.fail(Option.none())
          : Effect.flatMap(
              Effect.mapError(readAt(file.fd, Math.min(READ_SIZE, length - done), start + done), Option.some),
              (bytes) => {
                done += bytes.length
                return bytes.length === 0
                  ? // Fewer bytes than announced: the connection must not look as if it ended well.
                    Effect.fail(Option.some(fromErrno(path)(new Error("the file became shorter"))))
                  : Effect.succeed(bytes)
              }
            )
      )
    )
    return HttpServerResponse.stream(content, {
      status: range === undefined ? 200 : 206,
      contentType: "application/octet-stream",
      contentLength: length,
      headers: {
        "accept-ranges": "bytes",
        "content-disposition": disposition(file.name),
        ...(range === undefined ? {} : { "content-range": `bytes ${range.start}-${range.end}/${file.size}` })
      }
    })
  })

export const fileRoutes: ReadonlyArray<Route> = [
  route("GET", /^\/files\/info$/, filesInfo),
  route("DELETE", /^\/files$/, removeFiles),
  route("POST", /^\/files\/permissions$/, permissions),
  route("POST", /^\/files\/mv$/, move),
  route("GET", /^\/files\/search$/, search),
  route("POST", /^\/files\/replace$/, replace),
  route("POST", /^\/files\/upload$/, upload),
  route("GET", /^\/files\/download$/, download),
  route("GET", /^\/directories\/list$/, listDirectory),
  route("POST", /^\/directories$/, makeDirectories),
  route("DELETE", /^\/directories$/, removeDirectories)
]
