/** @internal */
import * as Redacted from "effect/Redacted"

/**
 * Secrets in the clear, at the last moment before they are sent.
 *
 * @internal
 */
export const revealed = (values: { readonly [key: string]: string | Redacted.Redacted }): Record<string, string> => {
  const out: Record<string, string> = {}
  for (const [key, value] of Object.entries(values)) {
    out[key] = Redacted.isRedacted(value) ? Redacted.value(value) : value
  }
  return out
}
