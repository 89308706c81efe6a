// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package plan determines what an owner wants to load and attach on this node, and
// the steps to get there from the daemon's programs. It doesn't call the daemon.
package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"path"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/problem"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// Plan contains what an owner wants on this node. The zero Plan wants nothing. Nobody changes a Plan: its methods return
// another one.
type Plan struct {
	UID     types.UID
	Loads   []Load
	Blocked []Blocked
	// Evicted contains the kernel IDs of programs to unload, although the plan wants or
	// keeps them.
	Evicted map[uint32]bool
}

// WithEvicted returns the plan that has programs unloaded, although it wants or keeps them.
func (p Plan) WithEvicted(programs ...daemon.Program) Plan {
	if len(programs) == 0 {
		return p
	}
	evicted := map[uint32]bool{}
	maps.Copy(evicted, p.Evicted)
	for _, program := range programs {
		evicted[program.ID] = true
	}
	p.Evicted = evicted
	return p
}

// errHeld is the problem of programs that are held.
var errHeld = problem.Errorf(problem.LinksUnknown, "the daemon has links whose attach points are unknown until the program's report can be read")

// WithHeld returns the plan that holds the programs of some members.
func (p Plan) WithHeld(held func(program.Member) bool) Plan {
	return p.With(func(_ int, wanted Program) Program {
		if held(wanted.Member) {
			wanted.Held = true
			wanted.Problem = cmp.Or(wanted.Problem, errHeld)
		}
		return wanted
	})
}

// With returns the plan with other programs for its own, of the n-th Load each. They are copies, which the function can
// change.
func (p Plan) With(another func(n int, wanted Program) Program) Plan {
	p.Loads = slices.Clone(p.Loads)
	for n := range p.Loads {
		programs := slices.Clone(p.Loads[n].Programs)
		for i, wanted := range programs {
			wanted.Points = slices.Clone(wanted.Points)
			programs[i] = another(n, wanted)
		}
		p.Loads[n].Programs = programs
	}
	return p
}

// Problems joins the problems of all programs. It returns nil if there are none.
func (p Plan) Problems() error {
	var all []error
	for _, load := range p.Loads {
		for _, wanted := range load.Programs {
			all = append(all, wanted.Problem)
		}
	}
	return errors.Join(all...)
}

// Discovers reports whether a link of a function of the n-th Load belongs to an
// attach point that was discovered on the node, and that lacks nothing in the plan.
func (p Plan) Discovers(n int, function string, link daemon.Link) bool {
	return n < len(p.Loads) && p.Loads[n].leads(function, link, func(point program.AttachPoint) bool { return point.Discovered && point.Lack == nil })
}

// Load is one Load call of the daemon, with functions that share their maps.
type Load struct {
	// ID is a hash of everything that requires a reload when it changes, except the map
	// owner.
	ID string
	// SameID is the ID with an empty globaldata instead of none, or with none instead of an empty one: both load the same.
	SameID string
	// Functions contains the functions to load, with unique names.
	Functions []*gobpfman.LoadInfo
	// Programs contains the owner's programs that use these functions. If several
	// programs use one function, it is loaded once, and has the links of all of them.
	Programs []Program
	// MapOwner is the kernel ID of the program whose maps are used, or nil.
	MapOwner *uint32
}

// leads reports whether a link of a function leads to a certain attach point.
func (l Load) leads(function string, link daemon.Link, certain func(program.AttachPoint) bool) bool {
	return slices.ContainsFunc(l.Users(function), func(user Program) bool {
		return slices.ContainsFunc(user.Points, func(point program.AttachPoint) bool { return LinkOf(point) == link && certain(point) })
	})
}

// Users returns the programs that use a function.
func (l Load) Users(function string) []Program {
	var users []Program
	for _, p := range l.Programs {
		if p.Function() == function {
			users = append(users, p)
		}
	}
	return users
}

// Program is a program that an owner wants.
type Program struct {
	program.Member
	Points []program.AttachPoint
	// Problem is the reason why some attach points are unknown. Unseen means that some are unknown
	// without a failure (program.ErrUnseen).
	Problem error
	Unseen  bool
	// Held means that one of the loaded program's links without a record can be that of an attach point. Nothing is attached,
	// and these links aren't detached.
	Held bool
	// stays reports whether a link stays although it isn't known whether the program wants it. Nil means that all do.
	stays func(daemon.Link) bool
	// Idle is the type of the program's condition if there is nothing to attach to.
	Idle v1alpha1.BpfProgramConditionType
	// Notes are what users should know although the program works.
	Notes []problem.Note
	// Starts are what users should know about the starts of pods, even while there is nothing to attach to.
	Starts []problem.Note
	// Policies contains the verdicts of policies on attach points.
	Policies []v1alpha1.BpfProgramPolicy
}

// Function returns the name of the program's entry function.
func (p Program) Function() string { return p.LoadInfo().GetName() }

// complete reports whether all of the program's attach points are known.
func (p Program) complete() bool {
	excess := (*program.ExcessError)(nil)
	return !p.Unseen && (p.Problem == nil || errors.Is(p.Problem, errHeld) || errors.As(p.Problem, &excess))
}

// mayWant reports whether a link stays that none of the program's known attach points requires.
func (p Program) mayWant(link daemon.Link) bool {
	return !p.complete() && (p.stays == nil || p.stays(link))
}

// Wants reports whether one of the program's attach points requires this link.
func (p Program) Wants(link daemon.Link) bool {
	return slices.ContainsFunc(p.Points, func(point program.AttachPoint) bool { return LinkOf(point) == link })
}

// LinkOf returns the link that an attach point requires.
func LinkOf(point program.AttachPoint) daemon.Link {
	return daemon.Link{Point: point.Name, Digest: point.Digest}
}

// Blocked is a program that can't be loaded at the moment.
type Blocked struct {
	program.Member
	Condition v1alpha1.BpfProgramConditionType
	Err       error
}

// MapOwner is a program on this node whose maps others can share.
type MapOwner struct {
	Name      string // of its BpfProgram
	Namespace string
	Labels    map[string]string
	// ID is the program's kernel ID, or, if it shares maps itself, the ID of their
	// owner. It is 0 if the program isn't loaded.
	ID uint32
}

// Want returns the plan for an owner's programs.
func Want(owner program.Owner, node program.Node, mapOwners []MapOwner) Plan {
	return want(owner, node, func(selector metav1.LabelSelector, _ string) (uint32, *Blocked) {
		return resolve(owner, selector, mapOwners)
	})
}

// AllBlocked returns the plan for an owner none of whose programs can be loaded, for the same reason.
func AllBlocked(owner program.Owner, condition v1alpha1.BpfProgramConditionType, reason error) Plan {
	p := Plan{UID: owner.UID}
	for _, member := range owner.Members {
		p.Blocked = append(p.Blocked, Blocked{member, condition, reason})
	}
	return p
}

// WantLoaded returns the plan for an owner's programs without those that aren't loaded. These share maps with the programs that they share
// them with now.
func WantLoaded(owner program.Owner, node program.Node, actual []daemon.Program) Plan {
	p := want(owner, node, func(_ metav1.LabelSelector, function string) (uint32, *Blocked) {
		for _, a := range slices.Backward(actual) {
			if a.OwnerUID == string(owner.UID) && a.Function == function && a.MapOwnerID != nil {
				return *a.MapOwnerID, nil
			}
		}
		return 0, &Blocked{}
	})
	all := p
	p.Loads, p.Blocked = nil, nil
	for n, load := range all.Loads {
		if all.Present(n, actual) != nil {
			p.Loads = append(p.Loads, load)
		}
	}
	return p
}

// want returns the plan for an owner's programs, of which some share the maps of others.
func want(owner program.Owner, node program.Node, sharing func(_ metav1.LabelSelector, function string) (uint32, *Blocked)) Plan {
	p := Plan{UID: owner.UID}
	for _, member := range owner.Members {
		if incomplete := member.Incomplete(); incomplete != nil {
			p.Blocked = append(p.Blocked, Blocked{member, v1alpha1.BpfProgCondNotLoaded, incomplete})
			continue
		}
		var mapOwner *uint32
		if selector := member.MapOwner(); selector != nil {
			id, blocked := sharing(*selector, member.LoadInfo().GetName())
			if blocked != nil {
				blocked.Member = member
				p.Blocked = append(p.Blocked, *blocked)
				continue
			}
			mapOwner = &id
		}
		points, err := member.AttachPoints(node)
		load := p.loadFor(member.LoadInfo(), mapOwner)
		points = load.withoutRepeated(member.LoadInfo().GetName(), points)
		wanted := Program{Member: member, Points: points, Problem: err, Notes: program.Notes(member.Spec, node)}
		if wanted.Unseen = errors.Is(err, program.ErrUnseen); wanted.Unseen {
			wanted.Problem = nil
		} else if len(points) == 0 {
			wanted.Idle = program.Idle(member.Spec, node)
		}
		load.Programs = append(load.Programs, wanted)
	}
	for n := range p.Loads {
		load := &p.Loads[n]
		load.ID = loadID(owner, owner.GlobalData, load.Functions)
		load.SameID = load.ID
		switch {
		case owner.GlobalData == nil:
			load.SameID = loadID(owner, map[string][]byte{}, load.Functions)
		case len(owner.GlobalData) == 0:
			load.SameID = loadID(owner, nil, load.Functions)
		}
	}
	return p
}

// withoutRepeated returns a program's points without interfaces of the node that an earlier program with the same function
// has discovered too. A link that discovers interfaces everywhere is a program for the node and one for all pods, and pods
// can have the network of the node.
func (l *Load) withoutRepeated(function string, points []program.AttachPoint) []program.AttachPoint {
	users := l.Users(function)
	return slices.DeleteFunc(points, func(point program.AttachPoint) bool {
		return point.Discovered && point.OnNode() && slices.ContainsFunc(users, func(user Program) bool { return user.Wants(LinkOf(point)) })
	})
}

// loadFor returns the Load for a function. There is one Load for each map owner. A
// Load can contain a name only once. Functions with the same name and different load
// parameters, such as the target of fentry programs, need further Loads.
func (p *Plan) loadFor(function *gobpfman.LoadInfo, mapOwner *uint32) *Load {
	for n := range p.Loads {
		load := &p.Loads[n]
		if !ptr.Equal(load.MapOwner, mapOwner) {
			continue
		}
		i := slices.IndexFunc(load.Functions, func(f *gobpfman.LoadInfo) bool { return f.GetName() == function.GetName() })
		if i >= 0 && !proto.Equal(load.Functions[i], function) {
			continue
		}
		if i < 0 {
			load.Functions = append(load.Functions, function)
		}
		return load
	}
	p.Loads = append(p.Loads, Load{MapOwner: mapOwner, Functions: []*gobpfman.LoadInfo{function}})
	return &p.Loads[len(p.Loads)-1]
}

// resolve returns the kernel ID of the program that a map owner selector selects. It
// must select exactly one program, in the owner's namespace or cluster-scoped like
// the owner.
func resolve(owner program.Owner, selector metav1.LabelSelector, mapOwners []MapOwner) (uint32, *Blocked) {
	s, err := metav1.LabelSelectorAsSelector(&selector)
	if err != nil {
		return 0, &Blocked{Condition: v1alpha1.BpfProgCondMapOwnerNotFound, Err: problem.Errorf(problem.NoSuchMapOwner, "mapownerselector: %w", err)}
	}
	var found []MapOwner
	for _, m := range mapOwners {
		if m.Namespace == owner.Namespace && s.Matches(labels.Set(m.Labels)) {
			found = append(found, m)
		}
	}
	switch {
	case len(found) == 0:
		return 0, &Blocked{Condition: v1alpha1.BpfProgCondMapOwnerNotFound, Err: problem.Errorf(problem.NoSuchMapOwner, "no program on this node matches mapownerselector %s", s)}
	// Programs that use one function are one loaded program with one set of maps.
	case slices.ContainsFunc(found, func(m MapOwner) bool { return m.ID != found[0].ID }):
		names := make([]string, 0, len(found))
		for _, m := range found {
			names = append(names, m.Name)
		}
		slices.Sort(names)
		return 0, &Blocked{Condition: v1alpha1.BpfProgCondMapOwnerNotFound, Err: problem.Errorf(problem.SeveralMapOwners, "mapownerselector %s matches %d programs on this node instead of one: %v", s, len(names), names)}
	case found[0].ID == 0:
		return 0, &Blocked{Condition: v1alpha1.BpfProgCondMapOwnerNotLoaded, Err: problem.Errorf(problem.MapOwnerNotLoaded, "map owner %s is not loaded on this node", found[0].Name)}
	}
	return found[0].ID, nil
}

// loadID returns a hash of what is loaded. Avoid changes of the algorithm between
// versions of the agent, because they reload all programs. The hash doesn't include
// credentials and the pull policy, which don't change what is loaded, and the map
// owner, which is compared by ID.
func loadID(owner program.Owner, globals map[string][]byte, functions []*gobpfman.LoadInfo) string {
	type function struct {
		Name, Type, Symbol string
	}
	content := struct {
		Image, Path string
		GlobalData  map[string][]byte
		Functions   []function
		// Without it, the hash is that of earlier versions.
		Globals map[string]json.RawMessage `json:",omitempty"`
	}{GlobalData: globals, Globals: owner.Globals}
	if image := owner.Bytecode.Image; image != nil {
		content.Image = image.Url
	}
	if path := owner.Bytecode.Path; path != nil {
		content.Path = *path
	}
	for _, f := range functions {
		symbol := f.GetInfo().GetFentryLoadInfo().GetFnName() + f.GetInfo().GetFexitLoadInfo().GetFnName() + f.GetInfo().GetLsmLoadInfo().GetHookName()
		content.Functions = append(content.Functions, function{f.GetName(), f.GetProgramType().String(), symbol})
	}
	// For the daemon, the order of an application's members has no meaning.
	slices.SortFunc(content.Functions, func(a, b function) int { return strings.Compare(a.Name, b.Name) })
	b, _ := json.Marshal(content) //nolint:errchkjson // strings, bytes, and numbers can always be encoded
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// Request returns the request for the Load. If the bytecode is an image, it lacks the
// location.
func (l Load) Request(owner program.Owner) (*gobpfman.LoadRequest, error) {
	location := &gobpfman.BytecodeLocation{}
	switch b := owner.Bytecode; {
	case b.Image != nil && b.Image.Url == "":
		return nil, problem.Errorf(problem.NoBytecode, "bytecode.image.url is empty")
	case b.Image != nil:
		location = nil // a file that is found by the image
	case b.Path != nil && len(owner.Globals) > 0:
		return nil, problem.Errorf(problem.GlobalWithoutValues, "globals need an image, because the agent can't read the types of variables in bytecode.path: set their bytes in globaldata")
	case b.Path != nil:
		file, err := bytecodeFile(*b.Path)
		if err != nil {
			return nil, err
		}
		location.Location = &gobpfman.BytecodeLocation_File{File: file}
	default:
		return nil, problem.Errorf(problem.NoBytecode, "bytecode has neither an image nor a path")
	}
	for _, name := range slices.Sorted(maps.Keys(owner.GlobalData)) {
		if owner.GlobalData[name] == nil {
			return nil, problem.Errorf(problem.GlobalDataInvalid, "globaldata %s is neither base64 nor a list of bytes: set a number, a string, or a list of numbers in globals instead", name)
		}
	}
	uid := string(owner.UID)
	request := &gobpfman.LoadRequest{
		Bytecode:   location,
		GlobalData: owner.GlobalData,
		MapOwnerId: l.MapOwner,
		Uuid:       &uid,
		Metadata: map[string]string{
			v1alpha1.MetadataUUID:        uid,
			v1alpha1.MetadataProgramName: owner.Name,
			v1alpha1.MetadataKind:        owner.Kind,
			v1alpha1.MetadataLoad:        l.ID,
		},
	}
	if owner.Namespace != "" {
		request.Metadata[v1alpha1.MetadataNamespace] = owner.Namespace
	}
	for _, p := range l.Programs {
		if probe, can := p.Spec.(program.ReturnProbe); can && probe.ReturnProbe() != "" {
			request.Metadata[v1alpha1.MetadataActualType+p.Function()] = probe.ReturnProbe()
		}
	}
	request.Info = l.Functions
	return request, nil
}

// bytecodeFile returns the file of bytecode.path in the form that is checked, and that the daemon gets. In another form, the
// kernel could find another file: a directory before .. can be a link.
func bytecodeFile(requested string) (string, error) {
	file := path.Clean("/" + requested)
	switch {
	case requested == "":
		return "", problem.Errorf(problem.NoBytecode, "bytecode.path is empty")
	case program.MayBlock(file):
		return "", problem.Errorf(problem.FileNotRegular, "bytecode path %s is not a regular file: the daemon would never finish reading it", requested)
	case program.Below(file, bytecode.Dir):
		return "", problem.Errorf(problem.NoBytecode, "bytecode path %s is in the node's store of images: set bytecode.image instead", requested)
	}
	return file, nil
}
