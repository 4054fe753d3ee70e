// withPage(WORK, OPTIONS): WORK gets a page of a headless Chromium with a profile of its own, and its context.
const { chromium } = require('playwright-core');

const ARGS = [
  '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
  '--disable-background-networking', '--disable-component-update', '--disable-sync',
];

exports.withPage = async (work, options = {}) => {
  try {
    const context = await chromium.launchPersistentContext(process.env.BROWSER_PROFILE, {
      executablePath: process.env.BROWSER,
      headless: true,
      args: ARGS,
      viewport: { width: 1200, height: 720 },
      ...options,
    });
    try {
      const failed = (request) => console.error('failed:', request.url(), request.failure().errorText);
      context.on('requestfailed', failed);
      await work(await context.newPage(), context);
    } catch (error) {
      for (const page of context.pages()) console.error(page.url(), await page.innerText('body'));
      throw error;
    } finally {
      await context.close();
    }
  } catch (error) {
    console.error(String(error));
    process.exit(1);
  }
};
