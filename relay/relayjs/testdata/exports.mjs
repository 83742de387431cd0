// Compares what the declarations name with what the modules export: names, and the methods of classes.
//
//   node exports.mjs <directory of the package> <typescript.js>
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [dir, compiler] = process.argv.slice(2), ts = createRequire(import.meta.url)(compiler);
let wrong = 0;
function compare(what, declared, there) {
  const differ = [...declared.filter((n) => !there.includes(n)).map((n) => `${n} is only declared`),
    ...there.filter((n) => !declared.includes(n)).map((n) => `${n} is not declared`)];
  for (const d of differ) console.error(`${what}: ${d}`);
  wrong += differ.length;
}
for (const name of ["client", "crossings", "gateway", "silence"]) {
  const file = join(dir, `${name}.d.ts`), program = ts.createProgram([file], { strict: true, lib: ["lib.esnext.d.ts", "lib.dom.d.ts"] });
  const types = program.getTypeChecker(), module = await import(pathToFileURL(join(dir, `${name}.js`)));
  const values = types.getExportsOfModule(types.getSymbolAtLocation(program.getSourceFile(file)))
    .filter((s) => s.flags & ts.SymbolFlags.Value);
  compare(name, values.map((s) => s.name), Object.keys(module));
  for (const s of values.filter((s) => s.flags & ts.SymbolFlags.Class && s.name !== "WireError")) {
    const methods = [...s.members.values()].filter((m) => m.flags & ts.SymbolFlags.Method).map((m) => m.name);
    const prototype = Object.getOwnPropertyDescriptors(module[s.name].prototype);
    compare(`${name}.${s.name}`, methods, Object.keys(prototype)
      .filter((m) => m !== "constructor" && typeof prototype[m].value === "function"));
  }
}
process.exit(wrong ? 1 : 0);
