// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package plot draws measurements over time for the documentation, as SVG that is readable
// on light and dark pages.
package plot

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"strings"
)

// Point is a value at a time in seconds since the start.
type Point struct{ Seconds, Value float64 }

// Line is a series of values of one thing.
type Line struct {
	Name   string
	Points []Point
}

// Panel is a diagram of lines with the same unit.
type Panel struct {
	Title string
	Lines []Line
}

// Sizes in pixels.
const (
	width, height    = 860, 190
	left, right      = 60, 150
	top, bottom      = 34, 30
	fontSize         = 12
	ticksOfValues    = 4
	mostTicksOfTimes = 12
)

// colors are distinguishable on light and dark backgrounds, also with color blindness.
var colors = []struct{ light, dark string }{
	{"#0072b2", "#56b4e9"}, {"#d55e00", "#ff9e5e"}, {"#009e73", "#3fd0a4"}, {"#aa3f91", "#e49fd1"}, {"#8a6d00", "#f0e442"}, {"#555555", "#bbbbbb"},
}

// SVG draws the panels below each other, with the same time axis.
func SVG(panels []Panel) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="%d" role="img">`+"\n",
		width, height*len(panels), fontSize)
	style(&b)
	last := 0.0
	for _, p := range panels {
		for _, l := range p.Lines {
			for _, point := range l.Points {
				last = max(last, point.Seconds)
			}
		}
	}
	for i, p := range panels {
		fmt.Fprintf(&b, `<g transform="translate(0 %d)">`+"\n", i*height)
		p.draw(&b, last)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func style(b *bytes.Buffer) {
	b.WriteString("<style>\ntext { fill: #222 } .grid { stroke: #ccc } .line { fill: none; stroke-width: 1.5 }\n")
	for i, c := range colors {
		fmt.Fprintf(b, ".line%d { stroke: %s } .name%d { fill: %s }\n", i, c.light, i, c.light)
	}
	b.WriteString("@media (prefers-color-scheme: dark) {\ntext { fill: #ddd } .grid { stroke: #444 }\n")
	for i, c := range colors {
		fmt.Fprintf(b, ".line%d { stroke: %s } .name%d { fill: %s }\n", i, c.dark, i, c.dark)
	}
	b.WriteString("}\n</style>\n")
}

func (p Panel) draw(b *bytes.Buffer, last float64) {
	highest := 0.0
	for _, l := range p.Lines {
		for _, point := range l.Points {
			highest = max(highest, point.Value)
		}
	}
	step := roundStep(highest / ticksOfValues)
	highest = step * math.Ceil(max(highest, step)/step)
	x := func(seconds float64) float64 { return left + seconds/max(last, 1)*(width-left-right) }
	y := func(value float64) float64 { return height - bottom - value/highest*(height-top-bottom) }

	fmt.Fprintf(b, `<text x="%d" y="%d" font-weight="bold">%s</text>`+"\n", left, top-14, html.EscapeString(p.Title))
	for value := 0.0; value <= highest; value += step {
		fmt.Fprintf(b, `<path class="grid" d="M%d %.1fH%d"/><text x="%d" y="%.1f" text-anchor="end">%g</text>`+"\n",
			left, y(value), width-right, left-6, y(value)+fontSize/3, value)
	}
	const minute = 60
	for t, every := 0.0, roundStep(last/minute/mostTicksOfTimes)*minute; t <= last; t += every {
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%g min</text>`+"\n", x(t), height-bottom+fontSize+4, t/minute)
	}
	for i, l := range p.Lines {
		color := i % len(colors)
		var path strings.Builder
		for n, point := range l.Points {
			fmt.Fprintf(&path, "%c%.1f %.1f", map[bool]rune{true: 'M', false: 'L'}[n == 0], x(point.Seconds), y(point.Value))
		}
		fmt.Fprintf(b, `<path class="line line%d" d="%s"/><text class="name%d" x="%d" y="%d">%s</text>`+"\n",
			color, path.String(), color, width-right+10, top+(i+1)*(fontSize+4), html.EscapeString(l.Name))
	}
}

// roundStep returns the smallest product of 1, 2, or 5 and a power of ten that isn't smaller
// than step.
func roundStep(step float64) float64 {
	if step <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(step)))
	for _, factor := range []float64{1, 2, 5} {
		if factor*power >= step {
			return factor * power
		}
	}
	return 10 * power
}
