/** @internal */
import * as HttpClient from "@effect/platform/HttpClient"
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import type { Diagnostic, OpenSandbox } from "../../OpenSandbox.js"
import type { OpenSandboxError } from "../../OpenSandboxError.js"
import { originOf } from "../http/address.js"
import { decodeUtf8 } from "../http/body.js"
import * as Http from "../http/client.js"
import type { Where } from "../http/error.js"
import { invalidRequest } from "../http/error.js"
import { instant } from "../http/nullish.js"
import type { Caller, Decode } from "./caller.js"
import { sandboxPath, span, where } from "./caller.js"
import * as Wire from "./wire.js"

type Service = Context.Tag.Service<OpenSandbox>

const textCap = 64 * 1024 * 1024

const textBody = (at: Where): Decode<string> => {
  const body = Http.textBody(at, textCap)
  return (response) => Effect.map(body(response), decodeUtf8)
}

/** @internal */
export const makeDiagnostics = (caller: Caller): Pick<Service, "diagnosticLogs" | "diagnosticEvents"> => {
  const { base, call, client, createTimeout, options, retry } = caller
  // the address may be a permission, and a span would show it
  const silent = HttpClient.withTracerDisabledWhen(client, () => true)

  const fetched = (at: Where, sandboxId: string, url: string): Effect.Effect<string, OpenSandboxError> =>
    Effect.suspend(() => {
      const absolute = URL.canParse(url, `${base}/`) ? new URL(url, `${base}/`) : undefined
      if (absolute === undefined || !/^https?:$/.test(absolute.protocol)) {
        return Effect.fail(invalidRequest(at, "the address of the text is none that can be fetched"))
      }
      const own = options.apiKey !== undefined && absolute.origin === originOf(base)
      return retry(
        Effect.suspend(() =>
          Http.send(
            silent,
            at,
            createTimeout,
            HttpClientRequest.get(absolute, {
              headers:
                own && options.apiKey !== undefined ? { [Http.apiKeyHeader]: Redacted.value(options.apiKey) } : {}
            }),
            textBody(at)
          )
        )
      )
    }).pipe(span("diagnosticText", { "sandbox.id": sandboxId }))

  const diagnosticBody = (
    at: Where,
    sandboxId: string,
    kind: Diagnostic["kind"],
    scope: string
  ): Decode<Diagnostic> => {
    const text = textBody(at)
    const document = Http.jsonBody(at, Wire.schemas.Diagnostic)
    return (response) => {
      const contentType = response.headers["content-type"]
      // how servers answered before there were descriptions
      if (contentType !== undefined && /^text\/plain\b/i.test(contentType)) {
        return Effect.map(text(response), (content) => ({
          sandboxId,
          kind,
          scope,
          delivery: "inline" as const,
          contentType,
          truncated: false,
          warnings: [],
          text: Effect.succeed(content)
        }))
      }
      return Effect.map(document(response), (wire) => {
        const { content, contentUrl } = wire
        const remote = typeof content !== "string" && typeof contentUrl === "string" ? contentUrl : undefined
        return {
          sandboxId: wire.sandboxId ?? sandboxId,
          kind,
          scope: wire.scope ?? scope,
          delivery: remote === undefined ? "inline" : "url",
          contentType: wire.contentType ?? undefined,
          contentUrl: remote === undefined ? undefined : Redacted.make(remote),
          contentLength: wire.contentLength ?? undefined,
          expiresAt: instant(wire.expiresAt),
          truncated: wire.truncated ?? false,
          warnings: wire.warnings ?? [],
          text:
            remote === undefined ? Effect.succeed(content ?? "") : fetched(where("diagnosticText"), sandboxId, remote)
        }
      })
    }
  }

  const diagnostic =
    (method: "diagnosticLogs" | "diagnosticEvents", kind: Diagnostic["kind"]) =>
    (sandboxId: string, scope: string): Effect.Effect<Diagnostic, OpenSandboxError> => {
      const at = where(method)
      return Effect.gen(function* () {
        if (scope.trim() === "") return yield* Effect.fail(invalidRequest(at, "the scope is empty"))
        const path = yield* sandboxPath(at, sandboxId, `/diagnostics/${kind}`)
        return yield* retry(
          call(at, "GET", path, diagnosticBody(at, sandboxId, kind, scope), { params: [["scope", scope]] })
        )
      }).pipe(span(method, { "sandbox.id": sandboxId, "diagnostic.scope": scope }))
    }

  return {
    diagnosticLogs: diagnostic("diagnosticLogs", "logs"),
    diagnosticEvents: diagnostic("diagnosticEvents", "events")
  }
}
