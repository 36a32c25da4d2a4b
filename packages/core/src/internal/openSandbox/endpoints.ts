/** @internal */
import type * as Context from "effect/Context"
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
  (sandboxId, port) => {
    const at = where("endpoint")
    return Effect.gen(function* () {
      if (!Number.isInteger(port) || port < 1 || port > 65535) {
        return yield* Effect.fail(invalidRequest(at, `a port is a whole number from 1 to 65535, not ${port}`))
      }
      const path = yield* sandboxPath(at, sandboxId, `/endpoints/${port}`)
      const params = options.useServerProxy === true ? [["use_server_proxy", "true"] as const] : undefined
      const document = yield* retry(call(at, "GET", path, Http.jsonBody(at, Wire.schemas.Endpoint), { params }))
      const url = endpointUrl(document.endpoint, base)
      const headers: Record<string, Redacted.Redacted> = {}
      for (const [name, value] of Object.entries(document.headers ?? {})) headers[name] = Redacted.make(value)
      const origin = originOf(url)
      if (
        options.useServerProxy === true &&
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
