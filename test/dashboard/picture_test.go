package dashboard

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// maxPicture is the size of the README's picture, in bytes.
const maxPicture = 200_000

// The README's picture is the upper part of the operator's page: "make picture" writes it to docs/dashboard.png.
func TestPictureOfTheREADME(t *testing.T) {
	b, _ := signedIn(t, small(), operatorToken)
	b.do(chromedp.EmulateViewport(1280, 796))
	b.rows(3)
	b.until(`!!document.querySelector('.flow svg')`, "the flow of pods is drawn")
	b.still()
	image, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	require.NoError(t, err)
	require.Less(t, len(image), maxPicture)
	dir := screenshots(t)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "dashboard.png"), image, 0o644))
}
