import * as Fs from "node:fs"
import * as Http from "node:http"
import * as LocalOpenSandbox from "@sandglass/local/LocalOpenSandbox"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Logger from "effect/Logger"
import * as LogLevel from "effect/LogLevel"
import * as Redacted from "effect/Redacted"

const probe = await Effect.runPromise(Effect.either(Effect.scoped(LocalOpenSandbox.make({ mode: "namespaces" }))))

/** Why namespaces cannot be tested on this machine; undefined where they can. */
export const namespacesMissing: string | undefined = Either.isLeft(probe) ? probe.left.message : undefined

export const modes: ReadonlyArray<LocalOpenSandbox.Mode> =
  namespacesMissing === undefined ? ["namespaces", "plain"] : ["plain"]

if (namespacesMissing !== undefined) console.warn(`namespace tests are skipped: ${namespacesMissing}`)

export interface Answer {
  readonly status: number
  readonly headers: Headers
  readonly bytes: Uint8Array
  readonly text: string
  // biome-ignore lint/suspicious/noExplicitAny: bodies are looked into freely here.
  readonly json: any
}

export interface Event {
  readonly type: string
  readonly text?: string
  readonly timestamp: number
  readonly execution_time?: number
  readonly error?: { readonly ename: string; readonly evalue: string; readonly traceback: ReadonlyArray<string> }
}

export const events = (text: string): Array<Event> =>
  text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line))

export const outputOf = (all: ReadonlyArray<Event>, type = "stdout"): Array<string> =>
  all.filter((event) => event.type === type).map((event) => event.text ?? "")

export interface RequestOptions {
  readonly body?: unknown
  readonly headers?: { readonly [name: string]: string }
}

export const send = (method: string, url: string, options: RequestOptions = {}): Effect.Effect<Answer> =>
  Effect.promise(async (signal) => {
    const raw =
      options.body instanceof FormData || typeof options.body === "string" || options.body instanceof Uint8Array
    const response = await fetch(url, {
      method,
      headers: {
        ...(options.body === undefined || raw ? {} : { "content-type": "application/json" }),
        ...options.headers
      },
      body: options.body === undefined ? null : raw ? (options.body as BodyInit) : JSON.stringify(options.body),
      signal
    })
    const bytes = new Uint8Array(await response.arrayBuffer())
    const text = new TextDecoder().decode(bytes)
    return {
      status: response.status,
      headers: response.headers,
      bytes,
      text,
      get json() {
        return JSON.parse(text)
      }
    }
  })

export const idle = { entrypoint: ["tail", "-f", "/dev/null"], resourceLimits: { cpu: "500m" } }

export const fromImage = { image: { uri: "node:22" }, ...idle }

export class Box {
  constructor(
    readonly server: Server,
    readonly id: string,
    readonly url: string,
    readonly headers: { readonly [name: string]: string }
  ) {}

  request(method: string, path: string, options: RequestOptions = {}): Effect.Effect<Answer> {
    return send(method, `${this.url}${path}`, { ...options, headers: { ...this.headers, ...options.headers } })
  }

  /** Runs a command to its end. */
  run(command: string, options: object = {}): Effect.Effect<Array<Event>> {
    return Effect.map(this.request("POST", "/command", { body: { command, ...options } }), (answer) => {
      if (answer.status !== 200) throw new Error(`${answer.status}: ${answer.text}`)
      return events(answer.text)
    })
  }

  /** What a command printed, which must have succeeded. */
  text(command: string, options: object = {}): Effect.Effect<string> {
    return Effect.map(this.run(command, options), (all) => {
      if (all.at(-1)?.type !== "execution_complete") throw new Error(JSON.stringify(all))
      return outputOf(all)
        .map((line) => (line === "\n" ? "\n" : `${line}\n`))
        .join("")
    })
  }

  upload(path: string, content: BlobPart, metadata: object = {}): Effect.Effect<Answer> {
    const form = new FormData()
    form.append("metadata", new Blob([JSON.stringify({ path, ...metadata })], { type: "application/json" }), "metadata")
    form.append("file", new Blob([content], { type: "application/octet-stream" }), "file")
    return this.request("POST", "/files/upload", { body: form })
  }

  /** Begins an upload whose body does not end, until the scope does; tells the status of its answer, undefined where the connection was closed without. */
  stalledUpload(path: string, content: string) {
    const { headers, url } = this
    const head =
      `--b\r\ncontent-disposition: form-data; name="metadata"\r\n\r\n${JSON.stringify({ path })}\r\n` +
      `--b\r\ncontent-disposition: form-data; name="file"; filename="f"\r\n\r\n${content}`
    return Effect.map(
      Effect.acquireRelease(
        Effect.sync(() => {
          const request = Http.request(`${url}/files/upload`, {
            method: "POST",
            headers: { ...headers, "content-type": "multipart/form-data; boundary=b" }
          })
          const ended = new Promise<number | undefined>((resolve) => {
            request.on("response", (response) => resolve(response.statusCode))
            request.on("error", () => resolve(undefined))
            request.on("close", () => resolve(undefined))
          })
          request.write(head)
          return { request, ended }
        }),
        ({ request }) => Effect.sync(() => request.destroy())
      ),
      ({ ended, request }) => ({
        ended: Effect.promise(() => ended),
        finish: Effect.sync(() => request.end("\r\n--b--\r\n"))
      })
    )
  }

  download(path: string, headers: { readonly [name: string]: string } = {}): Effect.Effect<Answer> {
    return this.request("GET", `/files/download?path=${encodeURIComponent(path)}`, { headers })
  }

  /** Starts a command and returns once its first event is there, with the connection left open until the scope ends. */
  start(command: string, options: object = {}) {
    const { headers, url } = this
    return Effect.acquireRelease(
      Effect.promise(async () => {
        const controller = new AbortController()
        const response = await fetch(`${url}/command`, {
          method: "POST",
          headers: { "content-type": "application/json", ...headers },
          body: JSON.stringify({ command, ...options }),
          signal: controller.signal
        })
        if (response.status !== 200 || response.body === null)
          throw new Error(`${response.status}: ${await response.text()}`)
        const reader = response.body.getReader()
        const decoder = new TextDecoder()
        let text = ""
        const more = async () => {
          const next = await reader.read()
          if (next.done) return false
          text += decoder.decode(next.value, { stream: true })
          return true
        }
        while (!text.includes("\n\n")) await more()
        const first = events(text.slice(0, text.indexOf("\n\n")))[0]
        return {
          id: first?.text ?? "",
          abort: () => controller.abort(),
          /** Until some event has this text. */
          until: async (wanted: string) => {
            while (!text.includes(JSON.stringify(wanted)) && (await more()));
          },
          rest: async () => {
            while (await more());
            return events(text)
          }
        }
      }),
      (running) => Effect.sync(() => running.abort())
    )
  }

  status(id: string) {
    return Effect.map(this.request("GET", `/command/status/${id}`), (answer) => answer.json)
  }
}

export class Server {
  constructor(
    readonly url: string,
    readonly apiKey: string,
    readonly directory: string
  ) {}

  request(method: string, path: string, options: RequestOptions = {}): Effect.Effect<Answer> {
    return send(method, `${this.url}/v1${path}`, {
      ...options,
      headers: { "OPEN-SANDBOX-API-KEY": this.apiKey, ...options.headers }
    })
  }

  box(request: object = fromImage): Effect.Effect<Box> {
    return Effect.flatMap(this.request("POST", "/sandboxes", { body: request }), (answer) => {
      if (answer.status !== 202) throw new Error(`${answer.status}: ${answer.text}`)
      return this.connect(answer.json.id)
    })
  }

  connect(id: string): Effect.Effect<Box> {
    return Effect.map(this.request("GET", `/sandboxes/${id}/endpoints/44772`), (answer) => {
      if (answer.status !== 200) throw new Error(`${answer.status}: ${answer.text}`)
      return new Box(this, id, `http://${answer.json.endpoint}`, answer.json.headers)
    })
  }

  /** Takes a snapshot and waits until it is there. */
  snapshot(id: string): Effect.Effect<string> {
    return Effect.gen(this, function* () {
      const taken = yield* this.request("POST", `/sandboxes/${id}/snapshots`, { body: {} })
      if (taken.status !== 202) throw new Error(taken.text)
      return yield* eventually(
        Effect.map(this.request("GET", `/snapshots/${taken.json.id}`), (answer) => {
          const { state } = answer.json.status
          if (state === "Failed") throw new Error(answer.text)
          return state === "Ready" ? String(taken.json.id) : undefined
        })
      )
    })
  }
}

export const start = (options: LocalOpenSandbox.Options = {}) =>
  Effect.map(
    LocalOpenSandbox.make(options),
    (server) => new Server(server.url, Redacted.value(server.apiKey), server.directory)
  ).pipe(Logger.withMinimumLogLevel(LogLevel.Warning))

/** Looks again and again until there is something to see. */
export const eventually = <A, E, R>(
  look: Effect.Effect<A | undefined, E, R>,
  millis = 20_000
): Effect.Effect<A, E, R> =>
  Effect.flatMap(look, (seen) => {
    if (seen !== undefined) return Effect.succeed(seen)
    if (millis <= 0) throw new Error("it never happened")
    return Effect.zipRight(
      Effect.promise(() => new Promise((resume) => setTimeout(resume, 10))),
      eventually(look, millis - 10)
    )
  })

export const becomes = (what: () => boolean, millis?: number) =>
  eventually(
    Effect.sync(() => (what() ? true : undefined)),
    millis
  )

/** Processes of this machine that have a string among their arguments. */
export const processesWith = (text: string): Array<number> =>
  Fs.readdirSync("/proc").flatMap((name) => {
    if (!/^\d+$/.test(name) || Number(name) === process.pid) return []
    try {
      const state = /\) (\S)/.exec(Fs.readFileSync(`/proc/${name}/stat`, "utf8"))?.[1]
      return state !== "Z" && Fs.readFileSync(`/proc/${name}/cmdline`, "utf8").includes(text) ? [Number(name)] : []
    } catch {
      return []
    }
  })

export const mountsWith = (text: string): number =>
  Fs.readFileSync("/proc/self/mountinfo", "utf8")
    .split("\n")
    .filter((line) => line.includes(text)).length

let counter = 0
/** An argument for `sleep` that no other process on the machine has. */
export const nap = (): string => `300.${process.pid}${String(++counter).padStart(4, "0")}`
