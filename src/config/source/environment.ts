// Expands `${NAME}` and `${file:PATH}` in string values, once and after YAML parsing: a value can neither change the structure of
// the file nor refer to another one.
import type { FileValues } from './referenced-files.ts';

type Expansion =
  | {
      readonly ok: true;
      readonly value: string;
      /** Names of the referenced variables, in order, each once. */
      readonly variables: readonly string[];
      /** The referenced files as written, in order, each once. */
      readonly files: readonly string[];
      /** Whether all references have a default (`:-`), so that they may be unset or empty. */
      readonly optional: boolean;
    }
  | { readonly ok: false; readonly faults: readonly string[] };

const REFERENCE = /\$\{(?:file:([^}]+)|([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?)\}/y;

/**
 * @param text a scalar's value: `${NAME}`, `${NAME:-default}` (used when NAME is unset or empty), `${file:PATH}` and `$${` for a
 *   literal `${`
 * @param env its values are trimmed; defaults are not
 * @returns the expanded text, or a fault for each unset variable, each file without a value and for a malformed reference; faults
 *   name variables and files but never quote values or the text
 */
export function expand(text: string, env: NodeJS.ProcessEnv, fileValues: FileValues): Expansion {
  if (!text.includes('${')) return { ok: true, value: text, variables: [], files: [], optional: false };
  const variables = new Set<string>();
  const files = new Set<string>();
  const faults: string[] = [];
  let optional = true;
  let value = '';
  let from = 0;
  for (;;) {
    const at = text.indexOf('${', from);
    if (at === -1) break;
    // A preceding `$` escapes the reference, unless it belongs to the previous one.
    if (at > from && text[at - 1] === '$') {
      value += `${text.slice(from, at - 1)}\${`;
      from = at + 2;
      continue;
    }
    value += text.slice(from, at);
    REFERENCE.lastIndex = at;
    const match = REFERENCE.exec(text);
    if (match === null || match[3]?.includes('${')) {
      faults.push(
        // biome-ignore lint/suspicious/noTemplateCurlyInString: it explains the syntax
        'has a malformed reference: write ${NAME} or ${NAME:-default} with letters, digits and `_` in the name and no reference in the default, ${file:PATH}, or $${ for a literal ${',
      );
      break;
    }
    const [whole, path, name = '', fallback] = match;
    from = at + whole.length;
    if (path !== undefined) {
      optional = false;
      files.add(path);
      const found = fileValues.read(path);
      if (found.ok) value += found.value;
      else faults.push(`refers to the file ${path}, which ${found.fault}`);
      continue;
    }
    variables.add(name);
    const given = Object.hasOwn(env, name) ? env[name]?.trim() : undefined;
    if (fallback === undefined) {
      optional = false;
      if (given === undefined) {
        faults.push(`refers to the environment variable ${name}, which is not set`);
      }
      value += given ?? '';
    } else {
      value += given === undefined || given === '' ? fallback : given;
    }
  }
  if (faults.length > 0) return { ok: false, faults: [...new Set(faults)] };
  return {
    ok: true,
    value: value + text.slice(from),
    variables: [...variables],
    files: [...files],
    optional: optional && variables.size > 0,
  };
}
