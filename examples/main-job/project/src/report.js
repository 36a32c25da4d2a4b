import { readdir, readFile } from "node:fs/promises"
import { join } from "node:path"
import { setTimeout as pause } from "node:timers/promises"
import { count } from "./concordance.js"

const folder = process.argv[2] ?? "books"
const files = (await readdir(folder)).sort()

for (const [index, file] of files.entries()) {
  // A real report would be slow for better reasons; this one leaves time to be interrupted.
  await pause(400)
  const counts = count(await readFile(join(folder, file), "utf8"))
  const top = counts
    .slice(0, 5)
    .map(([word, n]) => `${word} ${n}`)
    .join(", ")
  console.log(`[${index + 1}/${files.length}] ${file}: ${counts.length} different words; ${top}`)
}
console.log("report complete")
