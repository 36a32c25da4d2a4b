// Makes node_modules match package-lock.json, so that a fresh clone needs no separate install step. It runs before anything is
// installed, hence no dependencies. Nothing happens when they match already; two of these at once take turns. With --check it only
// says whether they match.
import { spawnSync } from "node:child_process"
import fs from "node:fs"
import path from "node:path"
import { readJson, root } from "./lib/packages.mjs"

const at = (...names) => path.join(root, ...names)

/** Why an install is needed, or undefined. npm writes node_modules/.package-lock.json last, so a broken install has none. */
const reason = () => {
  const wanted = readJson(at("package-lock.json")).packages
  let present
  try {
    present = readJson(at("node_modules", ".package-lock.json")).packages
  } catch {
    return "dependencies are not installed"
  }
  for (const [key, entry] of Object.entries(wanted)) {
    if (!key.includes("node_modules/")) continue
    const installed = present[key]
    if (installed === undefined ? !(entry.optional || entry.os || entry.cpu) : installed.version !== entry.version) {
      return `package-lock.json has another ${key.replace(/^.*node_modules\//, "")}`
    }
    if (entry.link && !fs.existsSync(at(key))) return `${key} is missing`
  }
  return undefined
}

const isAlive = (pid) => {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return error.code === "EPERM"
  }
}

const lock = at(".setup.lock")

const ownerOf = (file) => {
  try {
    return Number(fs.readFileSync(file, "utf8"))
  } catch {
    return 0
  }
}

/** Takes the lock file (it holds the owner's pid) or says who has it; a dead owner's lock is removed. */
const tryLock = () => {
  const mine = `${lock}.${process.pid}`
  fs.writeFileSync(mine, String(process.pid))
  try {
    fs.linkSync(mine, lock)
    return undefined
  } catch (error) {
    if (error.code !== "EEXIST") throw error
  } finally {
    fs.rmSync(mine, { force: true })
  }
  const owner = ownerOf(lock)
  if (owner > 0 && !isAlive(owner)) {
    // Moved away first and looked at again: another process may have replaced it in between.
    const stale = `${lock}.stale.${process.pid}`
    try {
      fs.renameSync(lock, stale)
      if (ownerOf(stale) !== owner) fs.linkSync(stale, lock)
    } catch {
      // Someone else was faster.
    }
    fs.rmSync(stale, { force: true })
  }
  return owner
}

const sleep = (milliseconds) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds)

const install = () => {
  for (let told = false, owner = tryLock(); owner !== undefined; owner = tryLock()) {
    if (!told) console.log(`setup: waiting for another setup (process ${owner})`)
    told = true
    sleep(200)
  }
  try {
    const why = reason()
    if (why === undefined) return 0
    console.log(`setup: ${why}; running npm ci`)
    const npm = spawnSync("npm", ["ci", "--no-audit", "--no-fund"], {
      cwd: root,
      stdio: ["ignore", "inherit", "inherit"],
      shell: process.platform === "win32"
    })
    return npm.status ?? 1
  } finally {
    fs.rmSync(lock, { force: true })
  }
}

/** npm only runs bun's install script if package.json allows it and the npm in use agrees; without it `bun` is a stub. */
const ensureBun = () => {
  const bun = at("node_modules", "bun", "bin", "bun.exe")
  if (fs.existsSync(bun) && fs.statSync(bun).size > 1_000_000) return 0
  console.log("setup: completing the installation of bun")
  return spawnSync(process.execPath, ["install.js"], { cwd: at("node_modules", "bun"), stdio: "inherit" }).status ?? 1
}

const why = reason()
if (process.argv.includes("--check")) {
  if (why !== undefined) console.log(`setup: ${why}`)
  process.exitCode = why === undefined ? 0 : 1
} else {
  process.exitCode = (why === undefined ? 0 : install()) || ensureBun()
}
