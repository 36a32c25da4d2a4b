/** The local server: create, exec and snapshot, through the library and by bare requests, in each kind of isolation. */
import { OpenSandbox, Sandboxes } from "@sandglass/core"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"
import type { Figure, Options, Server, Subject } from "../harness.js"
import { interleaved, live, median, scratch, server, timed } from "../harness.js"

const changed = 100

/** The lifecycle API and execd without a client. */
const bare = ({ apiKey, url }: Server) => {
  const call = async (method: string, path: string, body?: unknown) => {
    const response = await fetch(`${url}/v1${path}`, {
      method,
      headers: { "open-sandbox-api-key": apiKey, "content-type": "application/json" },
      ...(body === undefined ? {} : { body: JSON.stringify(body) })
    })
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`)
    return response
  }
  const until = async (state: string, path: string, answer: Response) => {
    let info = (await answer.json()) as { readonly id: string; readonly status: { readonly state: string } }
    while (info.status.state !== state) {
      await Bun.sleep(1)
      info = (await (await call("GET", `${path}/${info.id}`)).json()) as typeof info
    }
    return info.id
  }
  const execTrue = async (url: string, headers: Readonly<Record<string, string>>) => {
    const response = await fetch(`${url}/command`, {
      method: "POST",
      headers: { ...headers, "content-type": "application/json" },
      body: JSON.stringify({ command: "true" })
    })
    const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader()
    let text = ""
    for (let read = await reader?.read(); read?.done === false; read = await reader?.read()) {
      text += read.value
      if (text.includes("execution_complete")) {
        await reader?.cancel()
        return
      }
    }
    throw new Error(`true did not end well: ${text}`)
  }
  return {
    /** Until a command has run in it, as a client waits for it. */
    create: async () => {
      const body = {
        image: { uri: "bench" },
        entrypoint: ["tail", "-f", "/dev/null"],
        resourceLimits: { cpu: "500m", memory: "512Mi" }
      }
      const id = await until("Running", "/sandboxes", await call("POST", "/sandboxes", body))
      const { endpoint, headers = {} } = (await (await call("GET", `/sandboxes/${id}/endpoints/44772`)).json()) as {
        readonly endpoint: string
        readonly headers?: Readonly<Record<string, string>>
      }
      const at = endpoint.includes("://") ? endpoint : `http://${endpoint}`
      await execTrue(at, headers)
      return { id, endpoint: at, headers }
    },
    execTrue,
    snapshot: async (id: string) => until("Ready", "/snapshots", await call("POST", `/sandboxes/${id}/snapshots`, {})),
    deleteSandbox: (id: string) => call("DELETE", `/sandboxes/${id}`)
  }
}

const measure = (
  mode: "namespaces" | "plain",
  { quick }: Options
): Effect.Effect<ReadonlyArray<Figure>, unknown, Scope.Scope> =>
  Effect.gen(function* () {
    const directory = yield* scratch
    const at = yield* server("local", mode)
    const context = yield* Layer.build(live(at, `${directory}/ledger.db`))
    const raw = bare(at)
    const rounds = quick ? { warmUp: 0, counted: 1 } : { warmUp: 5, counted: 21 }
    const figures: Array<Figure> = []
    const add = (what: string, times: ReadonlyArray<number>, atMost?: number) =>
      figures.push({
        what: `${mode}: ${what}`,
        value: median(times),
        unit: "ms",
        ...(atMost === undefined ? {} : { aim: { atMost } })
      })

    yield* Effect.gen(function* () {
      const sandboxes = yield* Sandboxes.Sandboxes
      const openSandbox = yield* OpenSandbox.OpenSandbox
      const create = sandboxes.create({ image: "bench", name: "bench" })

      const creating = yield* interleaved(rounds, {
        create: Effect.scoped(timed(create)),
        raw: Effect.promise(async () => {
          const start = performance.now()
          const { id } = await raw.create()
          const millis = performance.now() - start
          await raw.deleteSandbox(id)
          return millis
        })
      })
      add("Sandboxes.create", creating.create, 50)
      add("create, bare requests", creating.raw)

      const sandbox = yield* create
      const endpoint = yield* openSandbox.endpoint(sandbox.id, 44772)
      const headers = Object.fromEntries(
        Object.entries(endpoint.headers).map(([name, value]) => [name, Redacted.value(value)])
      )
      const running = yield* interleaved(rounds, {
        exec: timed(sandbox.exec("true")),
        raw: timed(Effect.promise(() => raw.execTrue(endpoint.url, headers)))
      })
      add("exec of true", running.exec, 25)
      add("exec of true, bare request", running.raw)

      const change = sandbox.exec(
        `mkdir -p /workspace/bench && for i in $(seq ${changed}); do date +%N > /workspace/bench/file-$i; done`
      )
      const snapshots = yield* interleaved(rounds, {
        checkpoint: Effect.gen(function* () {
          yield* change
          const start = performance.now()
          const { snapshotId } = yield* sandbox.checkpoint()
          const millis = performance.now() - start
          yield* openSandbox.deleteSnapshot(snapshotId)
          return millis
        }),
        raw: Effect.gen(function* () {
          yield* change
          const start = performance.now()
          const snapshotId = yield* Effect.promise(() => raw.snapshot(sandbox.id))
          const millis = performance.now() - start
          yield* openSandbox.deleteSnapshot(snapshotId)
          return millis
        })
      })
      add(`checkpoint, ${changed} changed files`, snapshots.checkpoint, 50)
      add(`snapshot, ${changed} changed files, bare`, snapshots.raw)
    }).pipe(Effect.provide(context))
    return figures
  })

export const local: Subject = {
  name: "local",
  title: "local server: create, exec, snapshot",
  run: (options) =>
    Effect.gen(function* () {
      const plain = yield* Effect.scoped(measure("plain", options))
      const namespaces = yield* Effect.exit(Effect.scoped(measure("namespaces", options)))
      // Not every machine allows them.
      return namespaces._tag === "Success"
        ? [...namespaces.value, ...plain]
        : [{ what: "namespaces: not available here", value: 0, unit: "" }, ...plain]
    })
}
