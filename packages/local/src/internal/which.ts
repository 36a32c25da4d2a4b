/** @internal */
import * as Fs from "node:fs"

/** Without the directory in which Bun, asked to stand in for Node everywhere, keeps something that is called `node` and is not. */
export const searchPath = (): ReadonlyArray<string> =>
  (process.env.PATH ?? "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    .split(":")
    .filter((directory) => !/\/bun-node-[^/]*$/.test(directory))

/** Programs of the system, by path: commands get an environment, and a `PATH`, of their own. */
export const which = (name: string): string | undefined =>
  [...searchPath(), "/usr/bin", "/bin", "/usr/sbin", "/sbin"]
    .map((directory) => `${directory}/${name}`)
    .find((path) => path.startsWith("/") && Fs.existsSync(path))
