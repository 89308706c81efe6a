// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import "fmt"

// participant is a column of a sequence diagram. Its class is a class in the style.
type participant struct {
	class, name, note string
}

// step is a row. from and to are indexes of columns. If they are equal, the step happens inside that participant,
// and its description is next to the participant's line.
type step struct {
	from, to int
	lines    []string
}

// phase is a sequence of steps with a caption.
type phase struct {
	caption string
	steps   []step
}

// sequence draws participants side by side. Numbered steps below them show the calls between them.
func sequence(width int, participants []participant, phases []phase) *canvas {
	const (
		margin, top, headHeight = 16, 16, 52
		gap, captionHeight      = 12, 30
	)
	column := (width - 2*margin) / len(participants)
	centre := func(i int) int { return margin + column*i + column/2 }

	body := &canvas{}
	y := top + headHeight + gap
	number := 0
	for _, p := range phases {
		height := 6
		if p.caption != "" {
			height = captionHeight
		}
		for _, s := range p.steps {
			height += rowHeight(s)
		}
		lane := &canvas{}
		lane.add(`<rect x="%d" y="%d" width="%d" height="%d" rx="8" class="lane"/>`, margin, y, width-2*margin, height+6)
		for i := range participants {
			lane.add(`<line x1="%[1]d" y1="%[2]d" x2="%[1]d" y2="%[3]d" class="life"/>`, centre(i), y-gap, y+height+6)
		}
		row := y + 6
		if p.caption != "" {
			lane.text(margin+12, y+20, "caption", p.caption)
			row = y + captionHeight
		}
		for _, s := range p.steps {
			number++
			lane.message(s, number, row, centre)
			row += rowHeight(s)
		}
		body.shapes.WriteString(lane.shapes.String())
		y += height + 6 + gap
	}

	c := &canvas{width: width, height: y - gap + margin}
	c.shapes.WriteString(body.shapes.String())
	for i, p := range participants {
		var note []string
		if p.note != "" {
			note = []string{p.note}
		}
		c.box(centre(i)-column/2+5, top, column-10, headHeight, p.class, p.name, note...)
	}
	return c
}

func rowHeight(s step) int { return 24 + lineHeight*len(s.lines) }

// message draws one step, whose row starts at y.
func (c *canvas) message(s step, number, y int, centre func(int) int) {
	x, bottom := centre(s.from), y+rowHeight(s)-12
	badge := func(x, y int) {
		c.add(`<circle cx="%d" cy="%d" r="9" class="step"/>`, x, y)
		c.text(x, y+4, "number", fmt.Sprint(number))
	}
	if s.from == s.to {
		badge(x, (y+bottom)/2+4)
		c.text(x+16, (y+bottom)/2+8-(len(s.lines)-1)*lineHeight/2, "label lanehalo", s.lines...)
		return
	}
	to, side := centre(s.to), 1
	if to < x {
		side = -1
	}
	c.arrow(point{x + 9*side, bottom}, point{to, bottom})
	badge(x, bottom)
	c.text((x+to)/2+5*side, bottom-8-(len(s.lines)-1)*lineHeight, "label middle lanehalo", s.lines...)
}
