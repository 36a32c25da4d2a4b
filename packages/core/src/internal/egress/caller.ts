/** @internal */

/** @internal */
export const egressPort = 18080
