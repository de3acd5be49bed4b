// Check Lua scripts as Redis runs them: Lua 5.1 syntax, no global but those Redis offers, no local
// that nobody reads. Usage: node lua_check.mjs FOLDER
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import luaparse from "luaparse";

const OFFERED = new Set(
  ("KEYS ARGV redis cjson cmsgpack struct bit math string table assert error getmetatable ipairs next pairs " +
    "pcall rawequal rawget rawset select setmetatable tonumber tostring type unpack xpcall").split(" "),
);

function* luaFiles(folder) {
  for (const entry of readdirSync(folder, { withFileTypes: true, recursive: true })) {
    if (entry.isFile() && entry.name.endsWith(".lua")) yield join(entry.parentPath ?? entry.path, entry.name);
  }
}

// An include is one local function, written for the scripts that pull it in: those see its name.
const folder = process.argv[2];
const files = [...luaFiles(folder)].sort();
const isInclude = (path) => path.includes("/includes/");
const included = new Set(files.filter(isInclude).map((path) => path.split("/").at(-1).slice(0, -".lua".length)));

const DECLARES = new Set([
  "LocalStatement.variables",
  "FunctionDeclaration.identifier",
  "FunctionDeclaration.parameters",
  "ForGenericStatement.variables",
  "ForNumericStatement.variable",
]);
const NAMES_A_FIELD = new Set(["MemberExpression.identifier", "TableKeyString.key"]);

function complaints(path) {
  let tree;
  try {
    tree = luaparse.parse(readFileSync(path, "utf8"), { luaVersion: "5.1", scope: true, locations: true });
  } catch (error) {
    return [`${path}:${error.line ?? "?"}: ${error.message}`];
  }
  const found = [];
  const complain = (node, what) => found.push(`${path}:${node.loc.start.line}: ${what}`);
  const declared = new Map();
  const read = new Set();
  (function walk(node, role) {
    if (Array.isArray(node)) return node.forEach((child) => walk(child, role));
    if (typeof node?.type !== "string") return;
    if (node.type === "Identifier") {
      if (DECLARES.has(role) && node.isLocal) declared.set(node.name, node);
      else if (role !== "AssignmentStatement.variables") NAMES_A_FIELD.has(role) || read.add(node.name);
      else if (!node.isLocal) complain(node, `assignment to the global '${node.name}'`);
    }
    for (const [part, child] of Object.entries(node)) walk(child, `${node.type}.${part}`);
  })(tree.body, "Chunk.body");
  for (const global of tree.globals) {
    if (!OFFERED.has(global.name) && !included.has(global.name)) complain(global, `unknown global '${global.name}'`);
  }
  for (const [name, node] of declared) {
    const exported = isInclude(path) && included.has(name);
    if (!read.has(name) && !exported && !name.startsWith("_")) complain(node, `'${name}' is never read`);
  }
  return found;
}

const all = files.flatMap(complaints);
all.forEach((line) => console.error(line));
console.log(`${files.length} Lua files checked, ${all.length} complaints.`);
process.exit(all.length ? 1 : 0);
