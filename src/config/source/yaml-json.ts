// A YAML value as JSON text, by the core schema of YAML 1.2: numbers stay as they are written, and quoted scalars are text.
import type { JsonReading } from '../schema/field-kinds.ts';
import type { YamlNode } from './yaml-tree.ts';

const WORD = /^(?:true|True|TRUE|false|False|FALSE)$/;
/** RFC 8259, 6. */
const NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?$/;
/** YAML 1.2.2, 10.3.2: what else is a number. */
const OTHER_NUMBER =
  /^(?:0o[0-7]+|0x[\da-fA-F]+|[-+]?(?:\.\d+|\d+(?:\.\d*)?)(?:[eE][-+]?\d+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$/;

/** @returns JSON text, or the fault of the first value that JSON cannot have */
export function jsonTextOf(node: YamlNode): JsonReading {
  switch (node.kind) {
    case 'blank':
      return { json: 'null', isHidden: false };
    case 'leaf': {
      const isHidden = node.variables.length > 0 || node.files.length > 0;
      if (node.isPlain && OTHER_NUMBER.test(node.value) && !NUMBER.test(node.value))
        return { fault: 'has a number that JSON cannot have: write it in decimal digits, or quote a text' };
      return { json: scalarOf(node.value, node.isPlain, node.emptied), isHidden };
    }
    case 'list': {
      const items = node.items.map(jsonTextOf);
      return joined(items, (texts) => `[${texts.join()}]`);
    }
    case 'branch': {
      const names = [...node.entries.keys()];
      const values = Array.from(node.entries.values(), ({ value }) => jsonTextOf(value));
      const nameAt = (index: number): string => JSON.stringify(names[index]);
      return joined(values, (texts) => `{${texts.map((text, index) => `${nameAt(index)}:${text}`).join()}}`);
    }
  }
}

function scalarOf(value: string, isPlain: boolean, isEmptied: boolean): string {
  if (isPlain && isEmptied) return 'null';
  if (isPlain && WORD.test(value)) return value.toLowerCase();
  return isPlain && NUMBER.test(value) ? value : JSON.stringify(value);
}

function joined(readings: readonly JsonReading[], join: (texts: readonly string[]) => string): JsonReading {
  const texts: string[] = [];
  let isHidden = false;
  for (const reading of readings) {
    if ('fault' in reading) return reading;
    texts.push(reading.json);
    isHidden ||= reading.isHidden;
  }
  return { json: join(texts), isHidden };
}
