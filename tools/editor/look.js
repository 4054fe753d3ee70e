// Opens the editor's page, types one line into its terminal, and takes a picture.
// node look.js URL PICTURE LINE AWAITED
const { withPage } = require('../browser/page');

const [url, picture, line, awaited] = process.argv.slice(2);

withPage(async (page) => {
  await page.goto(url, { waitUntil: 'domcontentloaded' });
  await page.locator('.monaco-workbench .explorer-folders-view').waitFor({ timeout: 90000 });
  await page.getByText('train.py').first().dblclick({ timeout: 30000 });
  await page.locator('.editor-instance .view-lines').first().waitFor({ timeout: 60000 });
  await page.keyboard.press('Control+Backquote');
  const terminal = page.locator('.terminal-wrapper .xterm-helper-textarea').first();
  await terminal.waitFor({ state: 'attached', timeout: 60000 });
  await page.locator('.xterm-rows').getByText('#').last().waitFor({ timeout: 60000 });
  await terminal.focus();
  await page.keyboard.type(line, { delay: 5 });
  await page.keyboard.press('Enter');
  await page.locator('.xterm-rows').getByText(awaited).last().waitFor({ timeout: 60000 });
  await page.screenshot({ path: picture });
}, { permissions: ['clipboard-read', 'clipboard-write'] });
