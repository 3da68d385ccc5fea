// Expands `${NAME}` in string values, once and after YAML parsing: a variable can neither change the structure of the file nor
// refer to another variable.

type Expansion =
  | {
      readonly ok: true;
      readonly value: string;
      /** Names of the referenced variables, in order, each once. */
      readonly variables: readonly string[];
      /** Whether all references have a default (`:-`), so that they may be unset or empty. */
      readonly optional: boolean;
    }
  | { readonly ok: false; readonly faults: readonly string[] };

const REFERENCE = /\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}/y;

/**
 * @param text a scalar's value: `${NAME}`, `${NAME:-default}` (used when NAME is unset or empty) and `$${` for a literal `${`
 * @param env its values are trimmed; defaults are not
 * @returns the expanded text, or a fault for each unset variable and for a malformed reference; faults name variables but
 *   never quote values or the text
 */
export function expand(text: string, env: NodeJS.ProcessEnv): Expansion {
  if (!text.includes('${')) return { ok: true, value: text, variables: [], optional: false };
  const variables = new Set<string>();
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
    if (match === null || match[2]?.includes('${')) {
      faults.push(
        // biome-ignore lint/suspicious/noTemplateCurlyInString: it explains the syntax
        'has a malformed reference: write ${NAME} or ${NAME:-default} with letters, digits and `_` in the name and no reference in the default, or $${ for a literal ${',
      );
      break;
    }
    const [whole, name = '', fallback] = match;
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
    from = at + whole.length;
  }
  if (faults.length > 0) return { ok: false, faults: [...new Set(faults)] };
  return {
    ok: true,
    value: value + text.slice(from),
    variables: [...variables],
    optional: optional && variables.size > 0,
  };
}
