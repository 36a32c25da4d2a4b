/** @internal */
import * as HttpBody from "@effect/platform/HttpBody"
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type { EgressClient, PolicyStatus } from "../../Egress.js"
import { decodeUtf8, snippet } from "../http/body.js"
import * as Http from "../http/client.js"
import { repeatable } from "../http/connections.js"
import type { Where } from "../http/error.js"
import { nullish } from "../http/nullish.js"
import type { Decode, PortCaller } from "../http/portCaller.js"
import { check } from "../http/portCaller.js"

const Action = Schema.transform(Schema.String, Schema.Literal("allow", "deny"), {
  // what is neither is the safe one
  decode: (text) => (text === "allow" ? "allow" : "deny"),
  encode: (action) => action
})

const Policy = Schema.Struct({
  defaultAction: nullish(Action),
  egress: nullish(Schema.Array(Schema.Struct({ action: Action, target: Schema.String })))
})

const Status = Schema.Struct({
  status: nullish(Schema.String),
  mode: nullish(Schema.String),
  enforcementMode: nullish(Schema.String),
  reason: nullish(Schema.String),
  policy: nullish(Policy)
})

const statusOf = (wire: typeof Status.Type): PolicyStatus => ({
  status: wire.status ?? undefined,
  mode: wire.mode ?? undefined,
  enforcementMode: wire.enforcementMode ?? undefined,
  reason: wire.reason ?? undefined,
  policy:
    wire.policy === undefined || wire.policy === null
      ? undefined
      : { defaultAction: wire.policy.defaultAction ?? undefined, egress: wire.policy.egress ?? undefined }
})

const decodeStatus = Schema.decodeUnknownOption(Schema.parseJson(Status))

/** A change may be answered by plain text, or by nothing: the status has said it. */
const changed =
  (at: Where): Decode<PolicyStatus> =>
  (response) =>
    Effect.map(Http.textBody(at, 1024 * 1024)(response), (bytes) => {
      const text = decodeUtf8(bytes)
      const status = decodeStatus(text)
      return status._tag === "Some" ? statusOf(status.value) : text.trim() === "" ? {} : { reason: snippet(text) }
    })

/** @internal */
export const makePolicy = ({
  connections,
  get,
  policy,
  send,
  span,
  where,
  write
}: PortCaller): Pick<EgressClient, "policy" | "addRules" | "removeRules"> => {
  const addRules: EgressClient["addRules"] = (rules) => {
    const at = where("addRules")
    return check(
      at,
      rules.length === 0
        ? "no rule is given"
        : rules.some(({ target }) => target.trim() === "")
          ? "the target of a rule is empty"
          : undefined
    ).pipe(
      Effect.zipRight(
        write(at, "PATCH", "/policy", () => rules.map(({ action, target }) => ({ action, target })), changed(at))
      ),
      span("addRules", { "rules.count": rules.length })
    )
  }

  const removeRules: EgressClient["removeRules"] = (targets) => {
    const at = where("removeRules")
    return check(
      at,
      targets.length === 0 ? "no target is given" : targets.includes("") ? "a target is empty" : undefined
    ).pipe(
      Effect.zipRight(
        repeatable(connections, policy, (connection) =>
          send(connection, at, HttpClientRequest.del("/policy", { body: HttpBody.unsafeJson(targets) }), changed(at))
        )
      ),
      span("removeRules", { "rules.count": targets.length })
    )
  }

  const at = where("policy")
  return {
    policy: get(at, "/policy", [], Http.jsonBody(at, Status)).pipe(Effect.map(statusOf), span("policy")),
    addRules,
    removeRules
  }
}
