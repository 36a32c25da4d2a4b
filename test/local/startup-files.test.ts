import { spawnSync } from "node:child_process"
import * as Fs from "node:fs"
import * as Os from "node:os"
import * as Path from "node:path"
import { fileURLToPath } from "node:url"
import { assert, it } from "@effect/vitest"

it("no start-up file of the user's shell is run, whatever the server was started from", () => {
  const home = Fs.mkdtempSync(Path.join(Os.tmpdir(), "sandglass-home-"))
  try {
    const log = Path.join(home, "ran.log")
    for (const file of [".bashrc", ".profile", "env.sh"]) {
      Fs.writeFileSync(Path.join(home, file), `echo ${file} >>'${log}'\nexit 0\n`)
    }
    const { SHLVL: _level, ...env } = process.env
    const startup = Path.join(home, "env.sh")
    const program = fileURLToPath(new URL("../support/oneSandbox.ts", import.meta.url))
    const run = spawnSync(process.execPath, [program], {
      env: { ...env, HOME: home, BASH_ENV: startup, ENV: startup },
      encoding: "utf8",
      timeout: 60_000
    })
    assert.strictEqual(run.status, 0, run.stderr)
    assert.include(run.stdout, "hello from the sandbox")
    assert.isFalse(Fs.existsSync(log), "a start-up file was run")
  } finally {
    Fs.rmSync(home, { recursive: true, force: true })
  }
}, 90_000)
