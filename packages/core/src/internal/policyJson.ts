import type { Json } from "../LedgerEvent.js"
import type { NetworkPolicy } from "../OpenSandbox.js"
import { isJsonObject, jsonField, jsonObject, stringField } from "./json.js"

/** A policy as the ledger keeps it. */
export const policyToJson = ({ defaultAction, egress }: NetworkPolicy): Json =>
  jsonObject({ defaultAction, egress: egress?.map(({ action, target }) => ({ action, target })) })

/** What is neither is the safe one. */
const actionOf = (text: string | undefined) => (text === "allow" ? "allow" : "deny")

/** And back; undefined where there is none. */
export const policyFromJson = (json: Json | undefined): NetworkPolicy | undefined => {
  if (!isJsonObject(json)) return undefined
  const defaultAction = stringField(json, "defaultAction")
  const egress = jsonField(json, "egress")
  return {
    ...(defaultAction === undefined ? {} : { defaultAction: actionOf(defaultAction) }),
    ...(Array.isArray(egress)
      ? {
          egress: egress.flatMap((rule: Json) => {
            const target = stringField(rule, "target")
            return target === undefined ? [] : [{ action: actionOf(stringField(rule, "action")), target }]
          })
        }
      : {})
  }
}
