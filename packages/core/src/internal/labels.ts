/** @internal */
import { createHash } from "node:crypto"

const name = /^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$/
const subdomain = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/

/** @internal */
export const isLabelValue = (text: string): boolean => text.length <= 63 && name.test(text)

/** @internal */
export const labelValue = (text: string): string => {
  if (isLabelValue(text)) return text
  // UTF-16 code units, so that two texts that differ in a lone surrogate differ here as well
  const units = new Uint8Array(text.length * 2)
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i)
    units[i * 2] = unit >> 8
    units[i * 2 + 1] = unit & 0xff
  }
  const hash = createHash("sha256").update(units).digest("hex").slice(0, 32)
  const readable = text
    .slice(0, 60)
    .replace(/[^A-Za-z0-9]+/g, "-")
    .replace(/^-/, "")
    .slice(0, 30)
    .replace(/-$/, "")
  return readable === "" ? hash : `${readable}.${hash}`
}

/**
 * What is wrong with a metadata key, if anything.
 *
 * @internal
 */
export const labelKeyProblem = (key: string): string | undefined => {
  if (key.startsWith("opensandbox.io/")) return `the metadata key ${JSON.stringify(key)} is reserved by the server`
  const slash = key.indexOf("/")
  const prefix = slash < 0 ? undefined : key.slice(0, slash)
  const own = key.slice(slash + 1)
  const valid =
    own.length <= 63 && name.test(own) && (prefix === undefined || (prefix.length <= 253 && subdomain.test(prefix)))
  return valid
    ? undefined
    : `the metadata key ${JSON.stringify(key)} is no Kubernetes label name (letters, digits, "-", "_", "."; at most 63)`
}

/**
 * What is wrong with some metadata, if anything. `null` values are the removals of a patch.
 *
 * @internal
 */
export const metadataProblem = (metadata: { readonly [key: string]: string | null }): string | undefined => {
  for (const [key, value] of Object.entries(metadata)) {
    const problem = labelKeyProblem(key)
    if (problem !== undefined) return problem
    if (value !== null && !isLabelValue(value)) {
      return (
        `the metadata value ${JSON.stringify(value)} of ${JSON.stringify(key)} is no Kubernetes label value ` +
        `(letters, digits, "-", "_", "."; at most 63): convert it with OpenSandbox.labelValue`
      )
    }
  }
  return undefined
}
