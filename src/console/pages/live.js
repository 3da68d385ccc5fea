// Shows the figures as the gateway sends them.
const source = new EventSource('/console/live');
source.onmessage = ({ data }) => {
  for (const [id, text] of Object.entries(JSON.parse(data))) {
    const element = document.getElementById(`now-${id}`);
    if (element === null) continue;
    element.textContent = text.replaceAll('_', ' ');
    if (element.classList.contains('badge')) element.classList.toggle('bad', text !== 'ok');
  }
};
