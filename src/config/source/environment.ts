// `${NAME}` in string values: expanded once and after parsing, so that a variable can change neither the structure of the
// file nor name another variable. Does not know YAML or fields.

type Expansion =
  | {
      readonly ok: true;
      readonly value: string;
      /** Names of the variables that were referred to, in order, each once. */
      readonly variables: readonly string[];
      /** True where every reference says with `:-` that it may be unset or empty. */
      readonly optional: boolean;
    }
  | { readonly ok: false; readonly faults: readonly string[] };

const REFERENCE = /\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}/y;

/**
 * @param text a scalar's value: `${NAME}`, `${NAME:-default}` (used when NAME is unset or empty) and `$${` for a literal `${`
 * @param env values have their ends trimmed; defaults do not
 * @returns the expanded text, or one fault for each unset variable and for a malformed reference; faults name variables and
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
    // A `$` before it escapes the reference, unless that `$` was itself part of what came before.
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
