/**
 * Keys of working memory that this package uses itself.
 */

/** Neither shown to a model, nor changed by its tools. */
export const isReserved = (key: string): boolean => key.startsWith("sandglass.")

/** The most recent sandbox and checkpoint of a resource. */
export const sessionKey = "sandglass.session"
