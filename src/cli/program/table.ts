// Lists of commands: as a table that fits the terminal, or as JSON. Piped tables are never cut.
import { styleText } from 'node:util';
import { withoutInvisible } from '../../config/invisible-characters.ts';
import type { SearchPage, SearchPosition } from '../../store/key-record.ts';
import { type CommandIo, columnsOf, hasColors, write } from './terminal.ts';

/** Null is shown as a dash; all but texts is aligned to the right and never cut. */
export type TableCell = string | number | bigint | { readonly decimal: string } | null;

const PAGE = 500;
const GAP = '  ';
/** A column keeps this width while others are wider; where that is not enough, it goes on. */
const NARROW = 8;
/** States in colour, in columns that are called so. */
const GOOD = /^(active|good|ok|paid|claimed|closed)$/;
const BAD = /^(revoked|invalidated|expired|failed|unhealthy)$/;

/**
 * Writes all items of a list, as a JSON array of `fields` or as a table.
 * @param page reads the items after the last one of the previous page
 * @param columns fields that the table shows
 * @param shown what it shows for a field that is no text or number, or another text
 * @returns exit code 0
 */
export async function writeList<Item>(
  io: CommandIo,
  isJson: boolean,
  page: (limit: number, after: Item | undefined) => Promise<readonly Item[]>,
  fields: (item: Item) => object,
  columns: readonly string[],
  shown: (item: Item) => object = () => ({}),
): Promise<number> {
  let table: TableLines | undefined;
  let separator = '[';
  let last: Item | undefined;
  for (;;) {
    const items = await page(PAGE, last);
    if (isJson) {
      for (const item of items) {
        await write(io.stdout, `${separator}\n${JSON.stringify(fields(item))}`);
        separator = ',';
      }
    } else {
      const rows = items.map((item) => {
        const cells = { ...fields(item), ...shown(item) };
        return columns.map((name): TableCell => Reflect.get(cells, name));
      });
      // The first page decides on the widths; a list can be too long to wait for its end.
      table ??= new TableLines(columns, rows, io, items.length < PAGE);
      const lines = table.lines(rows).map((line) => `${line}\n`);
      await write(io.stdout, lines.join(''));
    }
    last = items.at(-1);
    if (items.length < PAGE) break;
  }
  if (isJson) await write(io.stdout, separator === '[' ? '[]\n' : '\n]\n');
  return 0;
}

/** Pages of a search for `writeList`: one that ends before it is full is continued. */
export function filledPages<Item>(
  search: (limit: number, after: SearchPosition | undefined) => Promise<SearchPage<Item>>,
): (limit: number) => Promise<readonly Item[]> {
  let rest: { readonly after: SearchPosition | undefined } | undefined = { after: undefined };
  return async (limit) => {
    const all: Item[] = [];
    while (rest !== undefined && all.length < limit) {
      const { items, next } = await search(limit - all.length, rest.after);
      all.push(...items);
      rest = next && { after: next };
    }
    return all;
  };
}

/** Writes one result, as JSON or as lines of text. @returns exit code 0 */
export async function print(
  { stdout }: CommandIo,
  isJson: boolean,
  fields: object,
  lines: readonly string[],
): Promise<number> {
  const shown = isJson ? [JSON.stringify(fields, null, 2)] : lines;
  await write(stdout, shown.map((line) => `${line}\n`).join(''));
  return 0;
}

/** The lines of a whole table. @param names of its columns */
export function tableOf(
  names: readonly string[],
  rows: readonly (readonly TableCell[])[],
  io: Pick<CommandIo, 'stdout' | 'env'>,
): readonly string[] {
  return new TableLines(names, rows, io, true).lines(rows);
}

const isNothing = (cell: TableCell | undefined) => cell === null || cell === 0 || cell === 0n;

/** The lines of one table, page by page. */
class TableLines {
  readonly #columns: readonly {
    readonly at: number;
    readonly name: string;
    readonly isNumber: boolean;
    readonly width: number;
  }[];
  readonly #hasColors: boolean;
  readonly #head: string[];

  /** @param isWhole whether these are all rows: then columns with nothing in them are left out where the table is too wide */
  constructor(
    names: readonly string[],
    rows: readonly (readonly TableCell[])[],
    io: Pick<CommandIo, 'stdout' | 'env'>,
    isWhole: boolean,
  ) {
    this.#hasColors = hasColors(io);
    const max = columnsOf(io) ?? Number.POSITIVE_INFINITY;
    const all = names.map((name, at) => {
      const cells = rows.map((row) => row[at] ?? null);
      const some = cells.filter((cell) => cell !== null);
      const isNumber = some.length > 0 && some.every((cell) => typeof cell !== 'string');
      const needed = cells.reduce<number>((width, cell) => Math.max(width, widthOf(textOf(cell))), 1);
      const isUsed = rows.length === 0 || !cells.every(isNothing);
      return { at, name, isNumber, needed, isUsed, width: Math.max(needed, name.length) };
    });
    const isWide = lengthOf(all.map(({ width }) => width)) > max;
    const kept = all.filter(({ isUsed }) => isUsed || !isWide || !isWhole);
    // The first column says which record it is, so it is the last to be cut below what others keep.
    const floors = [
      [NARROW, NARROW],
      [NARROW, 1],
      [1, 1],
    ].map(([first = 1, least = 1]) =>
      kept.map(({ at, isNumber, needed }) =>
        isNumber ? needed : Math.min(needed, at === 0 ? first : least),
      ),
    );
    const full = kept.map(({ width }) => width);
    const widths = fitting(full, floors, max);
    this.#columns = kept.map((column, index) => ({ ...column, width: widths[index] ?? 0 }));
    const head = names.map((name) => name.toUpperCase());
    const line = this.#line(head, (_name, _whole, text) => text);
    this.#head = [this.#colored('bold', line)];
  }

  /** The head comes before the first page. */
  lines(rows: readonly (readonly TableCell[])[]): readonly string[] {
    const shown = (name: string, state: string, text: string) => this.#stateText(name, state, text);
    return [...this.#head.splice(0), ...rows.map((row) => this.#line(row, shown))];
  }

  #line(row: readonly TableCell[], shown: (name: string, whole: string, text: string) => string): string {
    const cells = this.#columns.map(({ at, name, isNumber, width }, index) => {
      const whole = textOf(row[at]);
      const text = cut(whole, width);
      const padding = ' '.repeat(Math.max(0, width - widthOf(text)));
      if (isNumber) return padding + text;
      return shown(name, whole, text) + (index === this.#columns.length - 1 ? '' : padding);
    });
    return cells.join(GAP).trimEnd();
  }

  /** @param text the state, perhaps cut */
  #stateText(name: string, state: string, text: string): string {
    if (name !== 'state' && name !== 'standing') return text;
    return this.#colored(GOOD.test(state) ? 'green' : BAD.test(state) ? 'red' : 'yellow', text);
  }

  #colored(color: 'bold' | 'green' | 'red' | 'yellow', text: string): string {
    return this.#hasColors ? styleText(color, text, { validateStream: false }) : text;
  }
}

/** Takes from the widest columns until the line fits, but below the first floors only where those do not suffice. */
function fitting(
  widths: readonly number[],
  floors: readonly (readonly number[])[],
  max: number,
): readonly number[] {
  const fitted = [...widths];
  for (const floor of floors)
    for (let excess = lengthOf(fitted) - max; excess > 0; excess -= 1) {
      const spare = fitted.map((width, at) => (width > (floor[at] ?? 0) ? width : 0));
      const widest = Math.max(...spare);
      if (widest === 0) break;
      fitted[spare.lastIndexOf(widest)] = widest - 1;
    }
  return fitted;
}

function lengthOf(widths: readonly number[]): number {
  return widths.reduce((sum, width) => sum + width + GAP.length, -GAP.length);
}

function textOf(cell: TableCell | undefined): string {
  if (cell === null || cell === undefined) return '-';
  // Model names may come from clients.
  return withoutInvisible(typeof cell === 'object' ? cell.decimal : String(cell));
}

const GRAPHEMES = new Intl.Segmenter('en', { granularity: 'grapheme' });
/** East Asian wide characters (UAX #11) and emoji take two columns. */
const WIDE =
  /^[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{20000}-\u{3fffd}]|\p{Emoji_Presentation}|\ufe0f/u;

function cellsOf(text: string): readonly { readonly text: string; readonly width: number }[] {
  return Array.from(GRAPHEMES.segment(text), ({ segment }) => ({
    text: segment,
    width: WIDE.test(segment) ? 2 : 1,
  }));
}

/** Columns of a terminal that the text takes. */
function widthOf(text: string): number {
  // Most texts are ASCII.
  if (/^[ -~]*$/.test(text)) return text.length;
  return cellsOf(text).reduce((sum, { width }) => sum + width, 0);
}

function cut(text: string, max: number): string {
  if (widthOf(text) <= max) return text;
  let [kept, left] = ['', max - 1];
  for (const { text: part, width } of cellsOf(text)) {
    left -= width;
    if (left < 0) break;
    kept += part;
  }
  return `${kept}…`;
}
