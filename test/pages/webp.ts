// Small pictures for the documentation.
import type { Page } from '../helpers/browser.ts';

/** A fourth of the bytes. The browser encodes it, in a page that is not one of ours. */
export async function asWebp(page: Page, png: Buffer): Promise<Buffer> {
  const url: unknown = await page.evaluate(`(async () => {
    const image = new Image();
    image.src = 'data:image/png;base64,${png.toString('base64')}';
    await image.decode();
    const canvas = document.createElement('canvas');
    canvas.width = image.width;
    canvas.height = image.height;
    canvas.getContext('2d').drawImage(image, 0, 0);
    return canvas.toDataURL('image/webp', 0.9);
  })()`);
  return Buffer.from(String(url).replace(/^data:image\/webp;base64,/, ''), 'base64');
}
