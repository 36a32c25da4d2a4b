/** Under which a handle of a sandbox keeps what its execs share, for the modules of this package. */
export const contextKey: unique symbol = Symbol.for("~@sandglass/core/Sandbox/context")
