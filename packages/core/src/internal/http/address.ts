/** @internal */

/**
 * The base address of the lifecycle API, ending in `/v1`, from what people write: with or without a scheme, a slash at the end, or `/v1`.
 *
 * @internal
 */
export const lifecycleBase = (url: string): string => {
  const trimmed = url.trim()
  const absolute = /^https?:\/\//i.test(trimmed) ? trimmed : `http://${trimmed}`
  return `${absolute.replace(/\/+$/, "").replace(/\/v1$/, "").replace(/\/+$/, "")}/v1`
}

/**
 * The address of an endpoint, with a scheme and without a slash at the end. The server may leave out the scheme, which then is `http` whatever the
 * lifecycle API itself speaks, and a path alone is one of its own origin.
 *
 * @internal
 */
export const endpointUrl = (endpoint: string, base: string): string => {
  const trimmed = endpoint.trim().replace(/\/+$/, "")
  if (/^[a-z][a-z0-9+.-]*:\/\//i.test(trimmed)) return trimmed
  if (trimmed.startsWith("//")) return `http:${trimmed}`
  if (trimmed.startsWith("/")) return `${originOf(base) ?? ""}${trimmed}`
  return `http://${trimmed}`
}

/** @internal */
export const originOf = (url: string): string | undefined => (URL.canParse(url) ? new URL(url).origin : undefined)
