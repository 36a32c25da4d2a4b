/** @internal */
import * as Fs from "node:fs"

/** Programs of the system, by path: commands get an environment, and a `PATH`, of their own. */
export const which = (name: string): string | undefined =>
  [...(process.env.PATH ?? "").split(":"), "/usr/bin", "/bin", "/usr/sbin", "/sbin"]
    .map((directory) => `${directory}/${name}`)
    .find((path) => path.startsWith("/") && Fs.existsSync(path))
