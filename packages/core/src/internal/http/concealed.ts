/** @internal */
import * as Redacted from "effect/Redacted"
import { OpenSandboxError } from "../../OpenSandboxError.js"

/** Shorter ones are found in every text. */
const shortest = 4

const formsOf = (secret: Redacted.Redacted): ReadonlyArray<string> => {
  const value = Redacted.value(secret)
  return value.length < shortest ? [] : [...new Set([value, JSON.stringify(value).slice(1, -1)])]
}

/**
 * Takes the values that a request carried out of an error about it: some servers repeat what they refuse.
 *
 * @internal
 */
export const concealed = (
  secrets: Iterable<string | Redacted.Redacted | undefined>
): ((error: OpenSandboxError) => OpenSandboxError) => {
  const forms = Array.from(secrets).flatMap((secret) => (Redacted.isRedacted(secret) ? formsOf(secret) : []))
  const clean = (text: string | undefined) =>
    text === undefined ? undefined : forms.reduce((rest, form) => rest.replaceAll(form, "<redacted>"), text)
  return (error) => {
    if (forms.length === 0) return error
    const { cause, code, description, method, module, reason, requestId, retryAfter, status } = error
    const shown = [description, code, requestId, cause === undefined ? "" : String(cause)].join("\n")
    return clean(shown) === shown
      ? error
      : new OpenSandboxError({
          ...{ module, method, reason, status, retryAfter },
          description: clean(description),
          code: clean(code),
          requestId: clean(requestId)
        })
  }
}
