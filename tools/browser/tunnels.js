// Runs a notebook's two cells, the link being lost between them, and reads a scalar in TensorBoard.
// node tunnels.js NOTEBOOK TENSORBOARD CUT HEALED; prints what was seen as JSON.
const fs = require('fs');
const { withPage } = require('./page');

const [notebook, tensorboard, cut, healed] = process.argv.slice(2);
const outputs = '.jp-OutputArea-output';

async function until(condition) {
  const limit = Date.now() + 60000;
  while (!condition()) {
    if (Date.now() > limit) throw new Error('waited for too long');
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

async function runCell(page, number) {
  const cell = page.locator('.jp-CodeCell').nth(number);
  await cell.locator('.cm-content').click();
  await page.keyboard.press('Shift+Enter');
  const output = cell.locator(outputs).first();
  await output.waitFor({ timeout: 90000 });
  return (await output.innerText()).trim();
}

withPage(async (page, context) => {
  await page.goto(notebook, { waitUntil: 'domcontentloaded' });
  await page.locator('.jp-CodeCell').first().waitFor({ timeout: 90000 });
  await page.getByText(/\(.venv\) \| Idle/).waitFor({ timeout: 90000 });
  const cells = [await runCell(page, 0)];
  fs.writeFileSync(cut, '');
  await until(() => fs.existsSync(healed));
  cells.push(await runCell(page, 1));
  const board = await context.newPage();
  await board.goto(tensorboard, { waitUntil: 'domcontentloaded' });
  const card = board.locator('scalar-card').first();
  await card.getByText('0.375').first().waitFor({ timeout: 90000 });
  const runs = await board.locator('runs-data-table').innerText();
  console.log(JSON.stringify({ cells, runs, card: await card.innerText() }));
});
