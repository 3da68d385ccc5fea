// @ts-check
// Buttons that copy the text of a box. Without this script, a click selects the text.

for (const button of document.querySelectorAll('button[data-copies]')) {
  if (!(button instanceof HTMLButtonElement)) continue;
  const label = button.firstChild;
  button.hidden = false;
  button.addEventListener('click', async () => {
    const box = document.getElementById(button.dataset['copies'] ?? '');
    if (box === null || label === null) return;
    const isCopied = await copy(box);
    label.nodeValue = isCopied ? 'Copied' : 'Selected: press Ctrl+C';
    say(isCopied ? 'Copied' : 'The text is selected. Copy it with Ctrl+C.');
    setTimeout(() => {
      label.nodeValue = 'Copy';
    }, 2500);
  });
}

/**
 * @param {HTMLElement} box
 * @returns {Promise<boolean>}
 */
async function copy(box) {
  try {
    // Available on https and on localhost only.
    await navigator.clipboard.writeText(box.textContent ?? '');
    return true;
  } catch {
    getSelection()?.selectAllChildren(box);
    return document.execCommand('copy');
  }
}

/** @param {string} text for screen readers */
function say(text) {
  const place = document.getElementById('said');
  if (place !== null) place.textContent = text;
}
