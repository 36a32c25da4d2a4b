import { createHash } from "node:crypto"

/** 43 characters. The JSON text is one that UTF-8 can carry: halves of surrogate pairs stay different. */
export const hash = (text: string): string => createHash("sha256").update(JSON.stringify(text)).digest("base64url")
