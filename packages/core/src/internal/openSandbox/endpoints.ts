/** @internal */
import * as Clock from "effect/Clock"
import type * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import type { OpenSandbox } from "../../OpenSandbox.js"
import { endpointUrl, originOf } from "../http/address.js"
import * as Http from "../http/client.js"
import { invalidRequest } from "../http/error.js"
import type { Caller } from "./caller.js"
import { sandboxPath, span, where } from "./caller.js"
import * as Wire from "./wire.js"

/** @internal */
export const makeEndpoint =
  ({ base, call, options, retry }: Caller): Context.Tag.Service<OpenSandbox>["endpoint"] =>
  (sandboxId, port, wanted = {}) => {
    const at = where("endpoint")
    return Effect.gen(function* () {
      if (!Number.isInteger(port) || port < 1 || port > 65535) {
        return yield* Effect.fail(invalidRequest(at, `a port is a whole number from 1 to 65535, not ${port}`))
      }
      const path = yield* sandboxPath(at, sandboxId, `/endpoints/${port}`)
      const proxied = wanted.useServerProxy ?? (wanted.expires === undefined && options.useServerProxy === true)
      const params: Array<readonly [string, string]> = proxied ? [["use_server_proxy", "true"]] : []
      if (wanted.expires !== undefined) {
        const millis = Duration.toMillis(wanted.expires)
        const problem = proxied
          ? "a signed route does not lead through the control plane"
          : millis > 0 && Number.isFinite(millis)
            ? undefined
            : "a signed route expires after a positive and finite time"
        if (problem !== undefined) return yield* Effect.fail(invalidRequest(at, problem))
        params.push(["expires", String(Math.ceil(((yield* Clock.currentTimeMillis) + millis) / 1000))])
      }
      const document = yield* retry(call(at, "GET", path, Http.jsonBody(at, Wire.schemas.Endpoint), { params }))
      const url = endpointUrl(document.endpoint, base)
      const headers: Record<string, Redacted.Redacted> = {}
      for (const [name, value] of Object.entries(document.headers ?? {})) headers[name] = Redacted.make(value)
      const origin = originOf(url)
      if (
        proxied &&
        options.apiKey !== undefined &&
        origin !== undefined &&
        origin === originOf(base) &&
        !Object.keys(headers).some((name) => name.toLowerCase() === Http.apiKeyHeader)
      ) {
        headers[Http.apiKeyHeader] = options.apiKey
      }
      return { url, headers }
    }).pipe(span("endpoint", { "sandbox.id": sandboxId, "sandbox.port": port }))
  }
